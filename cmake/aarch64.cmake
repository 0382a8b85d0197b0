# SPDX-License-Identifier: Apache-2.0
# Toolchain for 64-bit ARM Linux on another machine, tests run by QEMU's user emulation:
#   cmake -S . -B build-arm -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake \
#     -DFREETOKEN_KERNELS_ONLY=ON && cmake --build build-arm && ctest --test-dir build-arm
# FREETOKEN_ARM_CPU picks the processor QEMU plays: max has everything, cortex-a72 no dot product.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static) # so that QEMU needs no foreign loader
set(FREETOKEN_ARM_CPU max CACHE STRING "Processor that QEMU plays")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu ${FREETOKEN_ARM_CPU})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
