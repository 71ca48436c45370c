//! `freehold config check|show|reference`.

use serde::Serialize;

use super::{
    Console,
    arguments::{ConfigAction, Format},
    failure::{Exit, Failure},
    local::Setup,
};
use crate::config::{self, LayerSummary};

/// A configuration that is right, and what it is made of.
#[derive(Serialize)]
struct Checked<'a> {
    valid: bool,
    layers: &'a [LayerSummary],
}

/// A key as `config reference` shows it.
#[derive(Serialize)]
struct Key {
    key: String,
    takes: String,
    default: String,
    effect: String,
}

pub fn run(
    setup: &Setup,
    action: ConfigAction,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    match action {
        ConfigAction::Check => {
            let config = setup.load()?;
            config.refuse_simulation_in_pod()?;
            let checked = Checked {
                valid: true,
                layers: config.layers(),
            };
            console.show(format, &checked, check_text)?;
        }
        ConfigAction::Show => {
            let config = setup.load()?;
            let text = match format {
                Format::Table => config.show_with_origins()?,
                Format::Yaml => config.show(config::Format::Yaml)?,
                Format::Json => config.show(config::Format::Json)?,
            };
            console.print(&with_line_end(text))?;
        }
        ConfigAction::Reference => {
            let keys: Vec<Key> = config::reference()
                .into_iter()
                .map(|entry| Key {
                    key: entry.key,
                    takes: entry.takes,
                    default: entry.default,
                    effect: entry.effect,
                })
                .collect();
            console.show(format, &keys, |_| with_line_end(config::plain_reference()))?;
        }
    }
    Ok(Exit::Done)
}

fn check_text(checked: &Checked<'_>) -> String {
    let mut text = String::from("the configuration is valid\n");
    for LayerSummary { layer, keys } in checked.layers {
        text.push_str(&format!("  {keys} keys from {layer}\n"));
    }
    text
}

fn with_line_end(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
