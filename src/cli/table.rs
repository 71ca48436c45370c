//! Aligned columns for people.

/// A table that is printed with each column as wide as its widest cell. Cells are kept on one line.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading for each column.
    #[must_use]
    pub fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![headings.map(str::to_owned).into()],
        }
    }

    /// A table of facts, without headings.
    #[must_use]
    pub fn facts() -> Self {
        Self { rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const COLUMNS: usize>(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.map(|cell| one_line(&cell)).into());
    }

    /// Adds a fact.
    pub fn fact(&mut self, name: &str, value: impl Into<String>) {
        self.row([name.to_owned(), value.into()]);
    }

    /// The text, with a line end after each row.
    #[must_use]
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| width(cell))
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, column_width) in row.iter().zip(&widths) {
                line.push_str(cell);
                let padding = column_width.saturating_sub(width(cell)) + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// What a server or a tenant wrote must not move the cursor or break the table.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let mut table = Table::new(["NAME", "STATE", "NOTE"]);
        table.row(["node-0001".into(), "ok".into(), String::new()]);
        table.row(["n2".into(), "größer".into(), "x".into()]);
        assert_eq!(
            table.render(),
            "NAME       STATE   NOTE\nnode-0001  ok\nn2         größer  x\n"
        );
    }

    #[test]
    fn hostile_text_stays_in_its_cell() {
        let mut table = Table::facts();
        table.fact("name", "a\nb\u{1b}[2J");
        assert_eq!(table.render(), "name  a b [2J\n");
    }
}
