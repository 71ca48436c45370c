//! `freehold watch`: topics of the bus, one event a line.

use super::{
    Console,
    arguments::Format,
    connection::Connection,
    failure::{Exit, Failure},
    follow::{Followed, Follower},
    table::one_line,
};
use crate::domain::event::{BusEvent, Change};

/// A line of a table is cut here; `-o json` has everything.
const LONGEST_VALUE: usize = 160;

pub async fn run(
    connection: &Connection,
    topics: Vec<String>,
    after: Option<u64>,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let mut follower = Follower::new(connection, topics, after);
    loop {
        if let Followed::Event(event) = follower.next(console).await? {
            console.show_next(format, &event, line)?;
        }
    }
}

fn line(event: &BusEvent) -> String {
    let what = match &event.change {
        Change::Value(value) => cut(&value.to_string()),
        Change::Deleted => "deleted".to_owned(),
        Change::Missed(count) => format!("missed {count} events"),
        Change::Reset => "starts over: present values follow".to_owned(),
    };
    let key = if event.key.is_empty() { "-" } else { &event.key };
    let text = format!("{}  {}  {}  {key}  {what}", event.at, event.sequence, event.topic);
    one_line(&text) + "\n"
}

fn cut(text: &str) -> String {
    if text.chars().count() <= LONGEST_VALUE {
        return text.to_owned();
    }
    let start: String = text.chars().take(LONGEST_VALUE).collect();
    start + "…"
}
