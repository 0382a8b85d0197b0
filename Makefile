# SPDX-License-Identifier: Apache-2.0
# The words of the README. Everything else is CMake's.
BUILD  ?= build
PREFIX ?= /usr/local
MODEL  ?= smollm2-135m
FUZZ_SECONDS ?= 60

.PHONY: all demo test quick-test sanitize arm fuzz bench install clean program deps deps-media deps-test deps-fuzz

all: deps-media program

# Pictures and sounds are part of it where their libraries are installed.
program:
	cmake -S . -B $(BUILD) -G Ninja -DFREETOKEN_TESTS=OFF
	cmake --build $(BUILD)

# Installs what is missing, builds, brings the default model and asks it about a long document.
demo: deps program
	$(BUILD)/freetoken pull $(MODEL)
	$(BUILD)/freetoken run $(MODEL) --file examples/panama-canal.txt \
	  --prompt "When was the Panama Canal opened, and which ship was the first to pass through it?"

# Installs what is missing and passes all tests.
test: deps-test
	scripts/run-tests all

# Only the ordinary build's tests: seconds.
quick-test: deps-test
	scripts/run-tests plain

sanitize: deps-test
	scripts/run-tests sanitize

arm: deps-test
	scripts/run-tests arm

# Every fuzzer for FUZZ_SECONDS.
fuzz: deps-fuzz
	scripts/run-fuzzers $(FUZZ_SECONDS)

deps-media:
	scripts/install-deps media
deps:
	scripts/install-deps build
deps-test:
	scripts/install-deps test
deps-fuzz:
	scripts/install-deps fuzz

bench: all
	$(BUILD)/freetoken bench $(MODEL)

install: all
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD) build-*
