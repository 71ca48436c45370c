.PHONY: test fmt

test: ## everything: format, lints, tests
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo test --locked

fmt:
	cargo fmt
