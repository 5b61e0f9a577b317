# A thin front to CMake. `make demo` or `make test` is all that a fresh Debian 12 needs.
#
#   make                 builds what users run: build/release/ullage
#   make demo            builds, then trains at three budgets and shows budgets at work on a fake GPU (bench/demo.sh)
#   make test            builds, then runs all tests that need no GPU
#   make asan, make tsan the same tests with sanitizers
#   make install         to DESTDIR and PREFIX (/usr/local)
#   make format          clang-format over all C files; `make check-format` only looks
#   make check-scripts   shellcheck over all shell scripts
#   make clean           removes build/
#
# Missing Debian packages are installed with apt, as root or through sudo (tools/need-packages).

PREFIX ?= /usr/local

# The fake driver and the tests are part of every build, so their libraries are too.
BUILD_PACKAGES = cmake ninja-build gcc g++ libc6-dev zlib1g-dev libncurses-dev libcmocka-dev libjansson-dev \
                 libmicrohttpd-dev libsqlite3-dev libdnnl-dev libopenblas0 libjpeg62-turbo-dev libpng-dev \
                 libprotobuf-c-dev protobuf-c-compiler libonnx-dev
TEST_PACKAGES = $(BUILD_PACKAGES) curl python3 tmux procps chromium chromium-driver \
                dataset-fashion-mnist bible-kjv bible-kjv-text libonnx-testdata
CHECK_PACKAGES = git clang-format shellcheck

# Ninja uses every core of itself; `make -j1` or `make -j4` asks it for that many.
JOBS = $(filter -j%,$(MAKEFLAGS))
GENERATOR = $(if $(wildcard build/$(1)/CMakeCache.txt),,-G Ninja)
build = cmake --preset $(1) $(GENERATOR) && cmake --build --preset $(1) $(JOBS)

.PHONY: all demo test asan tsan install format check-format check-scripts clean
.NOTPARALLEL:

all:
	@tools/need-packages $(BUILD_PACKAGES)
	$(call build,release)

demo: all
	@tools/need-packages dataset-fashion-mnist
	bench/demo.sh

test:
	@tools/need-packages $(TEST_PACKAGES)
	$(call build,release)
	@tools/run-tests release $(JOBS)

asan tsan:
	@tools/need-packages $(TEST_PACKAGES)
	$(call build,$@)
	@tools/run-tests $@ $(JOBS)

install: all
	DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"

format:
	@tools/need-packages $(CHECK_PACKAGES)
	git ls-files -z '*.c' '*.h' | xargs -0 clang-format -i

check-format:
	@tools/need-packages $(CHECK_PACKAGES)
	git ls-files -z '*.c' '*.h' | xargs -0 clang-format --dry-run --Werror

check-scripts:
	@tools/need-packages $(CHECK_PACKAGES)
	{ git grep -lIE '^#! ?/(usr/)?bin/(env )?(ba|da)?sh'; git ls-files completions; } | xargs shellcheck -x

clean:
	rm -rf build
