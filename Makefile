# The short way in; everything is a CMake preset below (CMakePresets.json).
PREFIX       ?= /usr/local
CLANG_FORMAT ?= clang-format-14
JOBS         ?= $(shell nproc)

FATHOM    = build/release/fathom
SOURCES   = $(shell find src experiments tests -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu')

.PHONY: help demo test build cuda bundle install book format check-format clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s%s\n", $$1, $$2 }' Makefile

build:  ## install packages.txt if missing, build build/release/fathom
	tools/install_packages packages.txt
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target fathom

demo: build  ## build, measure this machine, let the model answer, run the quick lab, write a report and say where
	$(FATHOM) doctor
	$(FATHOM) generate --prompt "What is 1234 + 5678?"
	@tools/quick_report $(FATHOM) artifacts

test:  ## build the tests beside the program and run every one; the last line counts passed, failed, skipped
	tools/install_packages packages.txt packages-test.txt
	cmake --preset test
	cmake --build --preset test --parallel $(JOBS)
	@tools/run_tests test

cuda:  ## add the GPU half to build/release/fathom (needs nvcc)
	tools/install_packages packages.txt
	cmake --preset cuda $(if $(FATHOM_CUDA_ARCHS),-DFATHOM_CUDA_ARCHS="$(FATHOM_CUDA_ARCHS)")
	cmake --build --preset cuda --parallel $(JOBS)

bundle: cuda  ## dist/fathom.tar.gz: the program and its libraries, for a GPU host without our packages
	tools/bundle build/release

install: build  ## install the program under PREFIX (/usr/local), staged under DESTDIR if set
	cmake --install build/release --prefix $(PREFIX)
	@test -x $(DESTDIR)$(PREFIX)/bin/fathom && echo "Installed $(DESTDIR)$(PREFIX)/bin/fathom"

book:  ## build/book/html: The Algebra of Speed, its numbers from results/; opens from the folder, without a network
	tools/install_packages packages-book.txt
	tools/build_book

format:  ## format every source in place
	@$(CLANG_FORMAT) -i $(SOURCES)

check-format:  ## fail where a source is not formatted
	@$(CLANG_FORMAT) --dry-run -Werror $(SOURCES)

clean:  ## remove build/ and artifacts/
	rm -rf build artifacts dist
