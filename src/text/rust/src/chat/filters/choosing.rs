//! Filters that choose items, or take a value or an attribute in place of one.

use super::super::arguments::Arguments;
use super::super::objects::Generator;
use super::super::values::{items, Path};
use super::Filter;
use crate::limits::{self, refuse};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

pub const FILTERS: &[Filter] = &[
    ("attr", &["name"], |_, value, args| {
        let name = args.text(0)?;
        // Not the items of a mapping.
        let is_plain = value.kind() == ValueKind::Map && !value.as_object().is_some_and(limits::is_namespace);
        Ok(if is_plain { Value::UNDEFINED } else { value.get_attr(name).unwrap_or(Value::UNDEFINED) })
    }),
    ("d", &["default_value", "boolean"], |_, value, args| Ok(default(value, args))),
    ("default", &["default_value", "boolean"], |_, value, args| Ok(default(value, args))),
    ("map", &["*"], map),
    ("reject", &["*"], |state, value, args| choose(state, value, args, false, false)),
    ("rejectattr", &["*"], |state, value, args| choose(state, value, args, true, false)),
    ("select", &["*"], |state, value, args| choose(state, value, args, false, true)),
    ("selectattr", &["*"], |state, value, args| choose(state, value, args, true, true)),
];

fn default(value: &Value, args: &Arguments) -> Value {
    let is_kept = !value.is_undefined() && (value.is_true() || !args.flag(1, false));
    if is_kept {
        value.clone()
    } else {
        args.given(0).cloned().unwrap_or(Value::from(""))
    }
}

fn unknown(what: &str, name: &str) -> Error {
    refuse(format!("{what} {name} is unknown"))
}

/// The first of `args` is the name of a filter or test, for which the others are; `item` goes in front of them.
struct Called<'a> {
    name: &'a str,
    args: Vec<Value>,
}

impl<'a> Called<'a> {
    fn new(name: &'a Value, args: &[Value], named: &[(String, Value)]) -> Result<Self, Error> {
        let name = name.as_str().ok_or_else(|| refuse("the name of a filter or test must be a text"))?;
        let mut all = vec![Value::UNDEFINED];
        all.extend_from_slice(args);
        if !named.is_empty() {
            all.push(Kwargs::from_iter(named.iter().cloned()).into());
        }
        Ok(Called { name, args: all })
    }

    fn with(&mut self, item: Value) -> Result<&[Value], Error> {
        limits::tick()?;
        self.args[0] = item;
        Ok(&self.args)
    }
}

fn map(state: &mut State, value: &Value, args: &Arguments) -> Result<Value, Error> {
    let items = if value.is_true() { items(value)? } else { Vec::new() };
    if items.is_empty() {
        return Generator::value(items);
    }
    let Some((name, others)) = args.further.split_first() else {
        let named = |name: &str| args.named.iter().find(|(given, _)| given == name).map(|(_, value)| value);
        let attribute = named("attribute").ok_or_else(|| refuse("map() wants the name of a filter or an attribute"))?;
        if let Some((name, _)) = args.named.iter().find(|(name, _)| name != "attribute" && name != "default") {
            return Err(refuse(format!("map() has no argument '{name}'")));
        }
        let path = Path::new(Some(attribute).filter(|attribute| !attribute.is_none()));
        let default = named("default").filter(|default| !default.is_none());
        let found = items.iter().map(|item| path.get(item, default));
        return Generator::value(found.collect::<Result<_, _>>()?);
    };
    let mut filter = Called::new(name, others, &args.named)?;
    let name = filter.name;
    let mapped = items.into_iter().map(|item| {
        let result = state.apply_filter(name, filter.with(item)?);
        result.map_err(|e| if e.kind() == ErrorKind::UnknownFilter { unknown("filter", name) } else { e })
    });
    Generator::value(mapped.collect::<Result<_, _>>()?)
}

fn choose(
    state: &mut State,
    value: &Value,
    args: &Arguments,
    by_attribute: bool,
    wanted: bool,
) -> Result<Value, Error> {
    let items = if value.is_true() { items(value)? } else { Vec::new() };
    if items.is_empty() {
        return Generator::value(items);
    }
    let (attribute, rest) = match args.further.split_first() {
        Some((attribute, rest)) if by_attribute => (Some(attribute), rest),
        None if by_attribute => return Err(refuse("the name of an attribute is missing")),
        _ => (None, args.further.as_slice()),
    };
    let path = Path::new(attribute);
    let mut test = rest.split_first().map(|(name, others)| Called::new(name, others, &args.named)).transpose()?;
    let mut chosen = Vec::new();
    for item in items {
        let subject = path.get(&item, None)?;
        let passes = match &mut test {
            Some(test) => {
                let name = test.name;
                let result = state.perform_test(name, test.with(subject)?);
                result.map_err(|e| if e.kind() == ErrorKind::UnknownTest { unknown("test", name) } else { e })?
            }
            None => subject.is_true(),
        };
        if passes == wanted {
            chosen.push(item);
        }
    }
    Generator::value(chosen)
}
