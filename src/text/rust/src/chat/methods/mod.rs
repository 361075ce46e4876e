//! Methods of Python's str, list, tuple, dict, int and float. Those that would change a value are refused, as in the
//! sandbox of transformers.

mod containers;
mod splitting;
mod text;

pub use splitting::{join, replace};
pub use text::{capitalized, padded, strip_with};

use super::arguments::Arguments;
use super::numbers::as_integer;
use super::python;
use super::values::type_name;
use crate::limits;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// A name, its parameters (as `Arguments` reads them), and what it does.
type Method<T> = (&'static str, &'static [&'static str], fn(&T, &Arguments) -> Result<Value, Error>);

fn call<T: ?Sized>(
    own: &T,
    methods: &[&'static [Method<T>]],
    name: &str,
    args: &[Value],
) -> Option<Result<Value, Error>> {
    let (_, parameters, method) = methods.iter().copied().flatten().find(|(own, ..)| *own == name)?;
    Some(Arguments::bind(name, parameters, args).and_then(|args| method(own, &args)))
}

fn number_method(value: &Value, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    let number = match (as_integer(value), python::as_float(value)) {
        (Some(number), _) => match name {
            "bit_length" => Value::from(128 - number.unsigned_abs().leading_zeros()),
            "bit_count" => Value::from(number.unsigned_abs().count_ones()),
            "is_integer" => Value::from(true),
            "conjugate" => Value::from(number),
            _ => return None,
        },
        (_, Some(number)) => match name {
            "is_integer" => Value::from(number.is_finite() && number.fract() == 0.0),
            "conjugate" => value.clone(),
            _ => return None,
        },
        _ => return None,
    };
    Some(Arguments::bind(name, &[], args).map(|_| number))
}

/// A method of a text without arguments.
pub fn of_text(text: &Value, name: &str) -> Result<Value, Error> {
    let own = text.as_str().unwrap_or_default();
    call(own, &[text::METHODS], name, &[]).unwrap_or_else(|| Err(Error::from(ErrorKind::UnknownMethod)))
}

pub fn method(_: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    limits::tick()?;
    let found = match (value.as_str(), value.kind()) {
        (Some(own), _) => call(own, &[text::METHODS, splitting::METHODS], name, args),
        (_, ValueKind::Map) => call(value, &[containers::OF_MAPPINGS], name, args),
        (_, ValueKind::Seq) => call(value, &[containers::OF_LISTS], name, args),
        _ => number_method(value, name, args),
    };
    found.unwrap_or_else(|| {
        let is_change = match value.kind() {
            ValueKind::Seq => containers::CHANGES_OF_LISTS.contains(&name),
            ValueKind::Map => {
                containers::CHANGES_OF_MAPPINGS.contains(&name) && value.get_item(&name.into())?.is_undefined()
            }
            _ => false,
        };
        if is_change {
            let kind = type_name(value);
            return Err(limits::refuse(format!("a template cannot change a value: {name}() of a {kind}")));
        }
        Err(Error::from(ErrorKind::UnknownMethod))
    })
}
