//! Rows of expected and got as a table for people.

use comfy_table::{Table, presets};

use super::evaluate::Row;

/// The rows of one check; those that do not hold are marked.
pub fn rows(rows: &[Row]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["", "", "expected", "got"]);
    for row in rows {
        let mark = if row.pass { "ok" } else { "NOT" };
        table.add_row([mark, &row.what, &row.expected, &row.got]);
    }
    table.trim_fmt()
}
