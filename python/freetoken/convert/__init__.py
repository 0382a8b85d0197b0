# SPDX-License-Identifier: Apache-2.0
"""Converts encoders of other projects to GGUF: python -m freetoken.convert."""
