# `make` alone says what there is.
.PHONY: help test full test-live testbed testbed-up fmt docs

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

test: ## everything, at the size of CI: format, lints, tests; a line per tier with its time
	@FREEHOLD_SCALE=$${FREEHOLD_SCALE:-ci} tests/tiers fmt clippy unit program

full: ## the same and the live tier, at the figures of the issues
	@FREEHOLD_SCALE=full tests/tiers fmt clippy unit program live

test-live: ## only what runs against a real Kubernetes control plane
	@tests/tiers live

testbed: ## builds the programs of the real control plane (once; minutes)
	tests/testbed/build

testbed-up: testbed ## a real control plane to play with, until Ctrl-C; NODES=n
	cargo run --locked --quiet --features live --example testbed-up -- $(NODES)

fmt: ## formats the code
	cargo fmt

docs: ## writes the documents that are made from the code
	FREEHOLD_WRITE_DOCS=1 cargo test --lib -- config bus
