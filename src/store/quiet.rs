//! sled panics on some damage instead of returning an error. Such a panic becomes an error with its message; it is
//! not printed over the operator's terminal as if the program had crashed.

use std::{
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::Once,
    thread,
};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs what may panic inside sled; a panic is an error that says what it said.
pub(super) fn catching<T>(operation: impl FnOnce() -> T) -> Result<T, String> {
    install();
    QUIET.with(|quiet| quiet.set(true));
    let outcome = panic::catch_unwind(AssertUnwindSafe(operation));
    QUIET.with(|quiet| quiet.set(false));
    outcome.map_err(|_| {
        let message = MESSAGE.with(RefCell::take);
        message.unwrap_or_else(|| "it panicked without a message".to_owned())
    })
}

/// Every other thread's panic is handled as before.
fn install() {
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.with(Cell::get) {
                MESSAGE.with(|message| message.replace(Some(describe(info))));
            } else if thread::current()
                .name()
                .is_some_and(|name| name.starts_with("sled-") || name == "log flusher")
            {
                // sled's own threads: the damage they met comes back as a failed flush.
                tracing::error!(message = describe(info), "a thread of sled panicked");
            } else {
                previous(info);
            }
        }));
    });
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    message.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_first_line() {
        let outcome: Result<(), String> = catching(|| panic!("segment {} is cut\nand more", 3));
        assert_eq!(outcome, Err("segment 3 is cut".to_owned()));
        assert_eq!(catching(|| 7), Ok(7));
    }
}
