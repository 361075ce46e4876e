//! The arguments of a call, bound to the parameters of a function or filter as Python binds them.

use super::numbers::as_integer;
use super::python;
use super::values::type_name;
use crate::limits::refuse;
use minijinja::value::Kwargs;
use minijinja::{Error, Value};
use std::borrow::Cow;

/// No template needs more columns, groups or digits than this.
pub const MAX_COUNT: usize = 10_000;

/// Behind the parameters: any further arguments, with or without a name.
pub const FURTHER: &str = "*";

pub struct Arguments<'a> {
    function: &'a str,
    parameters: &'a [&'a str],
    bound: Vec<Option<Value>>,
    /// Only where the parameters end with FURTHER.
    pub further: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

fn split_named(args: &[Value]) -> Result<(&[Value], Vec<(String, Value)>), Error> {
    let Some((last, before)) = args.split_last().filter(|(last, _)| last.is_kwargs()) else {
        return Ok((args, vec![]));
    };
    let named = Kwargs::try_from(last.clone())?;
    let pairs = named.args().map(|name| Ok((name.to_string(), named.get(name)?)));
    Ok((before, pairs.collect::<Result<_, Error>>()?))
}

impl<'a> Arguments<'a> {
    /// parameters: their names; one that can be given by its place only begins with '/'.
    pub fn bind(function: &'a str, parameters: &'a [&'a str], args: &[Value]) -> Result<Self, Error> {
        let takes_further = parameters.last() == Some(&FURTHER);
        let parameters = &parameters[..parameters.len() - usize::from(takes_further)];
        let (placed, all_named) = split_named(args)?;
        if placed.len() > parameters.len() && !takes_further {
            let most = parameters.len();
            return Err(refuse(format!("{function}() takes at most {most} arguments, {} are given", placed.len())));
        }
        let mut bound: Vec<Option<Value>> = placed.iter().take(parameters.len()).cloned().map(Some).collect();
        bound.resize(parameters.len(), None);
        let mut named = Vec::new();
        for (name, value) in all_named {
            match parameters.iter().position(|parameter| *parameter == name) {
                Some(place) if bound[place].is_some() => {
                    return Err(refuse(format!("{function}() got several values for '{name}'")));
                }
                Some(place) => bound[place] = Some(value),
                None if takes_further => named.push((name, value)),
                None => return Err(refuse(format!("{function}() has no argument '{name}'"))),
            }
        }
        let further = placed.iter().skip(parameters.len()).cloned().collect();
        Ok(Arguments { function, parameters, bound, further, named })
    }

    fn wrong(&self, place: usize, what: &str) -> Error {
        let name = self.parameters[place].trim_start_matches('/');
        refuse(format!("{}(): '{name}' {what}", self.function))
    }

    pub fn given(&self, place: usize) -> Option<&Value> {
        self.bound[place].as_ref()
    }

    /// For parameters whose default is none.
    pub fn some(&self, place: usize) -> Option<&Value> {
        self.given(place).filter(|value| !value.is_none())
    }

    pub fn required(&self, place: usize) -> Result<&Value, Error> {
        self.given(place).ok_or_else(|| self.wrong(place, "is missing"))
    }

    /// A text that must be given.
    pub fn text(&self, place: usize) -> Result<&str, Error> {
        let value = self.required(place)?;
        value.as_str().ok_or_else(|| self.wrong(place, &format!("must be a text, not {}", type_name(value))))
    }

    pub fn optional_text(&self, place: usize) -> Result<Option<&str>, Error> {
        self.some(place).map(|_| self.text(place)).transpose()
    }

    /// As `str(value)`.
    pub fn as_text(&self, place: usize, default: &str) -> Result<String, Error> {
        self.given(place).map_or_else(|| Ok(default.to_string()), |value| python::text_of(value).map(Cow::into_owned))
    }

    pub fn integer(&self, place: usize) -> Result<Option<i128>, Error> {
        let integer = |value| {
            as_integer(value).ok_or_else(|| self.wrong(place, &format!("must be an integer, not {}", type_name(value))))
        };
        self.given(place).map(integer).transpose()
    }

    pub fn optional_integer(&self, place: usize) -> Result<Option<i128>, Error> {
        self.some(place).map_or(Ok(None), |_| self.integer(place))
    }

    /// Of columns, groups or digits; 0 for a negative number.
    pub fn count(&self, place: usize, default: usize) -> Result<usize, Error> {
        match self.integer(place)? {
            None => Ok(default),
            Some(count) if count <= MAX_COUNT as i128 => Ok(count.max(0) as usize),
            Some(count) => Err(refuse(format!("{count} is more than the largest supported count, {MAX_COUNT}"))),
        }
    }

    pub fn flag(&self, place: usize, default: bool) -> bool {
        self.given(place).map_or(default, Value::is_true)
    }
}
