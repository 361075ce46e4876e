//! `json.dumps`, with the defaults that Hugging Face sets: nothing is escaped for HTML.

use super::super::arguments::Arguments;
use super::super::python::JsonStyle;
use super::Filter;
use minijinja::{Error, Value};

pub const FILTERS: &[Filter] =
    &[("tojson", &["ensure_ascii", "indent", "separators", "sort_keys"], |_, value, args| {
        let mut out = String::new();
        style(args)?.push(&mut out, value, 0)?;
        Ok(Value::from(out))
    })];

fn style(args: &Arguments) -> Result<JsonStyle, Error> {
    let indent = match args.some(1) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(args.count(1, 0)?),
        }),
    };
    let separators = args.some(2);
    let separator = |index: usize, default: &str| match separators {
        Some(pair) => pair.get_item_by_index(index).map(|text| text.to_string()),
        None => Ok(default.to_string()),
    };
    Ok(JsonStyle {
        ensure_ascii: args.flag(0, false),
        sort_keys: args.flag(3, false),
        item_separator: separator(0, if indent.is_some() { "," } else { ", " })?,
        key_separator: separator(1, ": ")?,
        indent,
    })
}
