//! A page for people: what the provider is doing, in one look. Rendered here, without scripts.

use std::fmt::{Display, Write as _};

use crate::domain::{
    inventory::{Inventory, Quantity},
    status::Status,
};

/// More rows than this are counted and not shown.
const MAX_ROWS: usize = 500;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #d8dee4}td.n{font-variant-numeric:tabular-nums}\
.ok{color:#116329}.bad{color:#a40e26}@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}\
th,td{border-color:#30363d}.ok{color:#3fb950}.bad{color:#ff7b72}}";

/// The page.
pub(super) fn render(status: &Status, inventory: &Inventory) -> String {
    let mut page = String::with_capacity(8 * 1024);
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, status, inventory);
    page
}

fn write_page(page: &mut String, status: &Status, inventory: &Inventory) -> std::fmt::Result {
    let (class, word) = if status.ready {
        ("ok", "ready")
    } else {
        ("bad", "not ready")
    };
    write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"10\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Freehold: {word}</title><style>{STYLE}</style></head><body>\
         <h1>Freehold <span class=\"{class}\">{word}</span></h1>"
    )?;
    if !status.reasons.is_empty() {
        page.push_str("<ul>");
        for reason in &status.reasons {
            write!(
                page,
                "<li class=\"bad\">{}: {}</li>",
                escape(&reason.part),
                escape(&reason.message)
            )?;
        }
        page.push_str("</ul>");
    }
    page.push_str("<table>");
    let store = if status.store.healthy {
        "healthy"
    } else {
        "not healthy"
    };
    let rows: [(&str, String); 8] = [
        ("Version", format!("{} ({})", status.version, status.revision)),
        ("Started", status.started_at.to_string()),
        ("Mode", status.mode.clone()),
        (
            "Cluster",
            format!("{} {}", status.cluster.kind, status.cluster.server),
        ),
        ("Nodes", known(status.inventory.nodes)),
        ("Reservations", status.reservations.to_string()),
        ("Leases", status.leases.to_string()),
        (
            "Store",
            format!("{store}, {} bytes, {}", status.store.bytes, status.store.path),
        ),
    ];
    for (name, value) in rows {
        write!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value))?;
    }
    page.push_str("</table><h2>Nodes</h2><table><tr><th>Name</th><th>Sold</th><th>CPU</th><th>Memory</th><th>GPU</th></tr>");
    for node in inventory.nodes.iter().take(MAX_ROWS) {
        let sold = if node.sellable {
            "yes".to_owned()
        } else {
            let codes: Vec<&str> = node.reasons.iter().map(|reason| reason.code.as_str()).collect();
            format!("no: {}", codes.join(", "))
        };
        let cards: Vec<String> = node
            .gpu
            .resources
            .iter()
            .map(|(name, quantity)| format!("{} {name}", known(quantity.allocatable)))
            .collect();
        write!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&node.name),
            escape(&sold),
            escape(&amount(node.cpu.quantity, 1000, "cores")),
            escape(&amount(node.memory.quantity, 1 << 30, "GiB")),
            escape(&cards.join(", "))
        )?;
    }
    page.push_str("</table>");
    if inventory.nodes.len() > MAX_ROWS {
        write!(page, "<p>and {} more</p>", inventory.nodes.len() - MAX_ROWS)?;
    }
    page.push_str("</body></html>");
    Ok(())
}

fn known<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

fn amount(quantity: Quantity, unit: i64, name: &str) -> String {
    match quantity.allocatable {
        Some(amount) => format!("{} {name}", amount / unit),
        None => "unknown".to_owned(),
    }
}

/// Names and messages come from the cluster and are not to be trusted.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}
