//! Methods of Python's str, dict and list: the size-checked ones, those that the crate lacks, then the crate's own.

use super::filters::{formatted, join, replace};
use super::operators::as_integer;
use crate::limits::{self, refuse};
use minijinja::formatting::FormatStyle;
use minijinja::value::{from_args, Kwargs, Tuple};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

const NO_KWARGS: [(&str, Value); 0] = [];

pub fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    limits::tick()?;
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    let pair = |split: Option<(&str, &str)>, sep: &str, at_end: bool| {
        let (a, b, c) = match split {
            Some((a, b)) => (a, sep, b),
            None if at_end => ("", "", text),
            None => (text, "", ""),
        };
        Value::from(Tuple::from([Value::from(a), Value::from(b), Value::from(c)]))
    };
    match name {
        "format" => formatted(FormatStyle::StrFormat, text, args),
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            join(items, Some(text), None, Kwargs::from_iter(NO_KWARGS))
        }
        "replace" => {
            let (from, to, count): (&str, &str, Option<i64>) = from_args(args)?;
            replace(text, from, to, count, Kwargs::from_iter(NO_KWARGS))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (sep,): (&str,) = from_args(args)?;
            if sep.is_empty() {
                return Err(refuse("empty separator"));
            }
            let last = name == "rpartition";
            Ok(pair(if last { text.rsplit_once(sep) } else { text.split_once(sep) }, sep, last))
        }
        "rsplit" => {
            let (sep, limit): (&str, Option<i64>) = from_args(args)?;
            if sep.is_empty() {
                return Err(refuse("empty separator"));
            }
            let limit = limit.and_then(|n| usize::try_from(n).ok()).map_or(usize::MAX, |n| n.saturating_add(1));
            let mut parts: Vec<Value> = text.rsplitn(limit, sep).map(Value::from).collect();
            parts.reverse();
            Ok(Value::from(parts))
        }
        "index" | "rindex" => {
            match pycompat::unknown_method_callback(state, value, &name.replace("index", "find"), args)? {
                found if as_integer(&found) == Some(-1) => {
                    Err(Error::new(ErrorKind::InvalidOperation, "substring not found"))
                }
                found => Ok(found),
            }
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}
