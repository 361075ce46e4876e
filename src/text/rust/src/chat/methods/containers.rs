//! Methods of lists, tuples and mappings.

use super::super::arguments::Arguments;
use super::super::objects::View;
use super::super::values::{self, equal, is_tuple, items, pairs};
use super::Method;
use crate::limits::refuse;
use minijinja::{Error, Value};

pub const CHANGES_OF_LISTS: [&str; 8] = ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
pub const CHANGES_OF_MAPPINGS: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];

pub const OF_LISTS: &[Method<Value>] = &[
    ("copy", &[], |own, _| if is_tuple(own) { Err(refuse("a tuple has no copy()")) } else { Ok(own.clone()) }),
    ("count", &["/value"], |own, args| {
        let wanted = args.required(0)?;
        Ok(Value::from(items(own)?.iter().filter(|item| equal(item, wanted)).count()))
    }),
    ("index", &["/value", "/start", "/stop"], index),
];

fn index(own: &Value, args: &Arguments) -> Result<Value, Error> {
    let (wanted, all) = (args.required(0)?, items(own)?);
    let size = all.len() as i128;
    let place = |bound: Option<i128>, default| {
        let bound = bound.unwrap_or(default);
        (if bound < 0 { bound + size } else { bound }).clamp(0, size) as usize
    };
    let (start, stop) = (place(args.integer(1)?, 0), place(args.integer(2)?, size));
    let found = (start..stop).find(|at| equal(&all[*at], wanted));
    found.map(Value::from).ok_or_else(|| refuse("index(): the value is not in the list"))
}

fn view(name: &'static str, items: Vec<Value>) -> Result<Value, Error> {
    Ok(Value::from_object(View { name, items }))
}

pub const OF_MAPPINGS: &[Method<Value>] = &[
    ("copy", &[], |own, _| Ok(own.clone())),
    ("fromkeys", &["/keys", "/value"], |_, args| {
        let value = args.given(1).cloned().unwrap_or(Value::from(()));
        Ok(Value::from_pairs(items(args.required(0)?)?.into_iter().map(|key| (key, value.clone()))))
    }),
    ("get", &["/key", "/default"], |own, args| {
        let found = own.get_item(args.required(0)?)?;
        let default = || args.given(1).cloned().unwrap_or(Value::from(()));
        Ok(if found.is_undefined() { default() } else { found })
    }),
    ("items", &[], |own, _| {
        view("items", pairs(own)?.into_iter().map(|(key, value)| values::tuple([key, value])).collect())
    }),
    ("keys", &[], |own, _| view("keys", items(own)?)),
    ("values", &[], |own, _| view("values", pairs(own)?.into_iter().map(|(_, value)| value).collect())),
];
