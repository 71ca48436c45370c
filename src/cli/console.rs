//! Where a command prints: results on stdout, everything else on stderr.

use std::{fmt, io::Write};

use serde::Serialize;

use super::{arguments::Format, failure::Failure};

/// The two outputs of a command.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl<'a> Console<'a> {
    /// A console on these outputs.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self { out, err }
    }

    /// Prints a result as it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        // Whoever reads a pipe gets each result when it is there.
        self.out.flush()?;
        Ok(())
    }

    /// Prints a document; `table` makes the form for people.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn show<T: Serialize>(
        &mut self,
        format: Format,
        document: &T,
        table: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let text = match format {
            Format::Table => table(document),
            Format::Json => {
                let mut text = serde_json::to_string_pretty(document).map_err(unprintable)?;
                text.push('\n');
                text
            }
            Format::Yaml => yaml(document)?,
        };
        self.print(&text)
    }

    /// Prints one of many documents: JSON on one line, YAML after a separator.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn show_next<T: Serialize>(
        &mut self,
        format: Format,
        document: &T,
        table: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let text = match format {
            Format::Table => table(document),
            Format::Json => {
                let mut text = serde_json::to_string(document).map_err(unprintable)?;
                text.push('\n');
                text
            }
            Format::Yaml => format!("---\n{}", yaml(document)?),
        };
        self.print(&text)
    }

    /// Tells people something that is no result.
    pub fn say(&mut self, text: &str) {
        // There is nowhere left to complain.
        let _ = writeln!(self.err, "{text}");
    }

    /// Tells why the command failed.
    pub fn fail(&mut self, failure: &Failure, format: Format) {
        let _ = self.err.write_all(failure.render(format).as_bytes());
        let _ = self.err.flush();
    }
}

fn yaml<T: Serialize>(document: &T) -> Result<String, Failure> {
    let mut text = serde_saphyr::to_string(document).map_err(unprintable)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn unprintable(error: impl fmt::Display) -> Failure {
    Failure::failed(format!("the result cannot be printed: {error}"))
}

impl fmt::Debug for Console<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Console")
    }
}
