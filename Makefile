.PHONY: test test-live testbed testbed-up fmt

test: ## everything: format, lints, tests
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo test --locked

test-live: testbed ## against a real Kubernetes control plane
	cargo test --locked --features live --test live

testbed: ## builds the programs of the real control plane (once; minutes)
	tests/testbed/build

testbed-up: testbed ## a real control plane to play with, until Ctrl-C; NODES=n
	cargo run --locked --quiet --features live --example testbed-up -- $(NODES)

fmt:
	cargo fmt
