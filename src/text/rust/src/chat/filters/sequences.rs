//! Filters of lists and mappings that neither choose nor compute: order, groups, ends, length.

use super::super::arguments::Arguments;
use super::super::objects::{Generator, Group};
use super::super::values::{self, compare, folded, items, Path};
use super::Filter;
use crate::limits::{check_size, refuse};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};
use std::cmp::Ordering;
use std::collections::HashSet;

pub const FILTERS: &[Filter] = &[
    ("batch", &["linecount", "fill_with"], |_, value, args| batch(items(value)?, args)),
    ("count", &[], |_, value, _| values::length(value).map(Value::from)),
    ("dictsort", &["case_sensitive", "by", "reverse"], |_, value, args| dict_sort(value, args)),
    ("first", &[], |_, value, _| values::iterate(value)?.next().unwrap_or(Ok(Value::UNDEFINED))),
    ("groupby", &["attribute", "default", "case_sensitive"], |_, value, args| group_by(value, args)),
    ("items", &[], |_, value, _| {
        let pairs = if value.is_undefined() { Vec::new() } else { values::pairs(value)? };
        Generator::value(pairs.into_iter().map(|(key, value)| values::tuple([key, value])).collect())
    }),
    ("last", &[], |_, value, _| match value.kind() {
        ValueKind::Number | ValueKind::Bool | ValueKind::None => Err(refuse("last() wants a sequence")),
        _ => Ok(items(value)?.pop().unwrap_or(Value::UNDEFINED)),
    }),
    ("length", &[], |_, value, _| values::length(value).map(Value::from)),
    ("list", &[], |_, value, _| items(value).map(Value::from)),
    ("max", &["case_sensitive", "attribute"], |_, value, args| extreme(value, args, Ordering::Greater)),
    ("min", &["case_sensitive", "attribute"], |_, value, args| extreme(value, args, Ordering::Less)),
    ("reverse", &[], |_, value, _| match value.as_str() {
        Some(text) => Ok(Value::from(text.chars().rev().collect::<String>())),
        None => Generator::value(items(value)?.into_iter().rev().collect()),
    }),
    ("slice", &["slices", "fill_with"], |_, value, args| slice(items(value)?, args)),
    ("sort", &["reverse", "case_sensitive", "attribute"], |_, value, args| sort(value, args)),
    ("unique", &["case_sensitive", "attribute"], |_, value, args| unique(value, args)),
];

fn batch(items: Vec<Value>, args: &Arguments) -> Result<Value, Error> {
    args.required(0)?;
    // Jinja2 takes a number that no row reaches for one row.
    let size = match args.count(0, 0)? {
        0 if items.is_empty() => 1,
        0 => return Err(refuse("batch(): the number of columns must be above 0")),
        size => size,
    };
    let mut rows: Vec<Vec<Value>> = items.chunks(size).map(<[Value]>::to_vec).collect();
    if let (Some(fill), Some(last)) = (args.some(1), rows.last_mut()) {
        last.resize(size, fill.clone());
    }
    Generator::value(rows.into_iter().map(Value::from).collect())
}

fn slice(items: Vec<Value>, args: &Arguments) -> Result<Value, Error> {
    args.required(0)?;
    let columns = args.count(0, 0)?;
    if columns == 0 {
        return Err(refuse("slice(): the number of columns must be above 0"));
    }
    let (size, longer) = (items.len() / columns, items.len() % columns);
    let mut rest = items.as_slice();
    let column = |index: usize| {
        let (own, after) = rest.split_at(size + usize::from(index < longer));
        rest = after;
        let fill = args.some(1).filter(|_| index >= longer).cloned();
        Value::from(own.iter().cloned().chain(fill).collect::<Vec<_>>())
    };
    Generator::value((0..columns).map(column).collect())
}

fn dict_sort(value: &Value, args: &Arguments) -> Result<Value, Error> {
    let by_value = match args.given(1).map_or(Ok("key"), |_| args.text(1))? {
        "key" => false,
        "value" => true,
        _ => return Err(refuse("dictsort() sorts by 'key' or 'value'")),
    };
    let case_sensitive = args.flag(0, false);
    let keyed = values::pairs(value)?.into_iter().map(|(key, value)| {
        let by = if by_value { value.clone() } else { key.clone() };
        (folded(by, case_sensitive), values::tuple([key, value]))
    });
    let sorted = values::sorted(keyed.collect(), args.flag(2, false))?;
    Ok(sorted.into_iter().map(|(_, pair)| pair).collect())
}

/// "name,age" are two keys.
fn sort(value: &Value, args: &Arguments) -> Result<Value, Error> {
    let attribute = args.some(2);
    let paths: Vec<Path> = match attribute.and_then(Value::as_str) {
        Some(names) => names.split(',').map(|name| Path::new(Some(&Value::from(name)))).collect(),
        None => vec![Path::new(attribute)],
    };
    let case_sensitive = args.flag(1, false);
    let keyed = items(value)?.into_iter().map(|item| {
        let key = |path: &Path| Ok(folded(path.get(&item, None)?, case_sensitive));
        Ok((Value::from(paths.iter().map(key).collect::<Result<Vec<_>, Error>>()?), item))
    });
    let sorted = values::sorted(keyed.collect::<Result<Vec<_>, Error>>()?, args.flag(0, false))?;
    Ok(Value::from(sorted.into_iter().map(|(_, item)| item).collect::<Vec<_>>()))
}

/// The first of the smallest or largest.
fn extreme(value: &Value, args: &Arguments, wanted: Ordering) -> Result<Value, Error> {
    let (path, case_sensitive) = (Path::new(args.some(1)), args.flag(0, false));
    let mut best: Option<(Value, Value)> = None;
    for item in items(value)? {
        let key = folded(path.get(&item, None)?, case_sensitive);
        let is_better = match &best {
            Some((best, _)) => compare(&key, best)? == wanted,
            None => true,
        };
        if is_better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or(Value::UNDEFINED, |(_, item)| item))
}

fn unique(value: &Value, args: &Arguments) -> Result<Value, Error> {
    let (path, case_sensitive) = (Path::new(args.some(1)), args.flag(0, false));
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for item in items(value)? {
        if seen.insert(values::set_key(&folded(path.get(&item, None)?, case_sensitive))?) {
            kept.push(item);
        }
    }
    Generator::value(kept)
}

fn group_by(value: &Value, args: &Arguments) -> Result<Value, Error> {
    let (path, default, case_sensitive) = (Path::new(Some(args.required(0)?)), args.some(1), args.flag(2, false));
    let keyed = items(value)?.into_iter().map(|item| Ok((folded(path.get(&item, default)?, case_sensitive), item)));
    let keyed = values::sorted(keyed.collect::<Result<Vec<_>, Error>>()?, false)?;
    check_size(Some(keyed.len()))?;
    let groups = keyed.chunk_by(|(a, _), (b, _)| values::equal(a, b)).map(|group| {
        // The key as the first item has it, not in lower case.
        let grouper = path.get(&group[0].1, default)?;
        let list = Value::from(group.iter().map(|(_, item)| item.clone()).collect::<Vec<_>>());
        Ok(Value::from_object(Group { grouper, list }))
    });
    Ok(Value::from(groups.collect::<Result<Vec<_>, Error>>()?))
}
