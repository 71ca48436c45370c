# `make` alone says what there is.
.PHONY: help test full fmt docs

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

test: ## everything, at the size of CI: format, lints, tests; a line per tier with its time
	@FREEHOLD_SCALE=$${FREEHOLD_SCALE:-ci} tests/tiers fmt clippy unit program

full: ## the same at the figures of the issues
	@FREEHOLD_SCALE=full tests/tiers fmt clippy unit program

fmt: ## formats the code
	cargo fmt

docs: ## writes the documents that are made from the code
	FREEHOLD_WRITE_DOCS=1 cargo test --lib -- config bus
