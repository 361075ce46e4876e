//! Jinja2's filters, as Hugging Face templates expect them. Those whose result can be larger than the sum of their
//! inputs (replace, join, indent, ...) check the size of the result before they make it.

mod choosing;
mod json;
mod markup;
mod numeric;
mod pretty;
mod sequences;
mod text;
mod wrapping;

use super::arguments::Arguments;
use crate::limits;
use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value};

pub use markup::escaped;

/// A name, its parameters (as `Arguments` reads them), and what it does.
type Filter = (&'static str, &'static [&'static str], fn(&mut State, &Value, &Arguments) -> Result<Value, Error>);

const ALL: [&[Filter]; 8] = [
    choosing::FILTERS,
    json::FILTERS,
    markup::FILTERS,
    numeric::FILTERS,
    pretty::FILTERS,
    sequences::FILTERS,
    text::FILTERS,
    wrapping::FILTERS,
];

pub fn register(env: &mut Environment<'_>) {
    // The engine's own, which Jinja2 does not have.
    for unbounded in ["chain", "zip"] {
        env.remove_filter(unbounded);
    }
    for (name, parameters, filter) in ALL.into_iter().flatten().copied() {
        env.add_filter(name, move |state: &mut State, value: &Value, args: Rest<ValueOrKwargs>| {
            limits::tick()?;
            filter(state, value, &Arguments::bind(name, parameters, &args.into_values())?)
        });
    }
}
