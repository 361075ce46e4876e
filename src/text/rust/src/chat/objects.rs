//! Values with a state or a look of their own: iterators, what groupby, cycler and joiner give.

use super::arguments::Arguments;
use super::python;
use super::values;
use crate::limits;
use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Python's generators: they are true even if nothing comes, and what came once does not come again.
#[derive(Debug)]
pub struct Generator(Mutex<std::vec::IntoIter<Value>>);

impl Generator {
    pub fn value(items: Vec<Value>) -> Result<Value, Error> {
        limits::weigh(&Value::from(items.clone()))?;
        Ok(Value::from_object(Generator(Mutex::new(items.into_iter()))))
    }

    fn items(&self) -> std::sync::MutexGuard<'_, std::vec::IntoIter<Value>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What has not come yet, which stays to come.
    pub fn rest(&self) -> Vec<Value> {
        self.items().as_slice().to_vec()
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let own = self.clone();
        Enumerator::Iter(Box::new(std::iter::from_fn(move || own.items().next())))
    }
    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items().len())
    }
}

/// As many as the engine's own function allows.
const MAX_RANGE: u64 = 100_000;

/// `range(start, stop, step)`.
#[derive(Debug)]
pub struct Range {
    start: i64,
    stop: i64,
    step: i64,
    length: usize,
}

impl Range {
    pub fn value(start: i64, stop: i64, step: i64) -> Result<Value, Error> {
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        match (span.max(0) as u64).div_ceil(step.unsigned_abs().max(1)) {
            _ if step == 0 => Err(limits::refuse("range() wants a step that is not 0")),
            length if length > MAX_RANGE => {
                Err(limits::refuse(format!("a range of more than {MAX_RANGE} numbers is not supported")))
            }
            length => Ok(Value::from_object(Range { start, stop, step, length: length as usize })),
        }
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        key.as_usize().filter(|at| *at < self.length).map(|at| Value::from(self.start + at as i64 * self.step))
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let (start, step) = (self.start, self.step);
        Enumerator::Iter(Box::new((0..self.length as i64).map(move |at| start + at * step).map(Value::from)))
    }
}

/// `dict.keys()`, `dict.values()`, `dict.items()`.
#[derive(Debug)]
pub struct View {
    pub name: &'static str,
    pub items: Vec<Value>,
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_rev_enumerator(|own| Box::new(own.items.iter().cloned()))
    }
    fn is_true(self: &Arc<Self>) -> bool {
        !self.items.is_empty()
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }
}

/// One of groupby: a pair whose parts have names.
#[derive(Debug)]
pub struct Group {
    pub grouper: Value,
    pub list: Value,
}

impl Object for Group {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match (key.as_str(), key.as_usize()) {
            (Some("grouper"), _) | (_, Some(0)) => Some(self.grouper.clone()),
            (Some("list"), _) | (_, Some(1)) => Some(self.list.clone()),
            _ => None,
        }
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(2)
    }
}

/// `cycler(a, b)`: `next()` gives one after the other, again and again.
#[derive(Debug)]
pub struct Cycler {
    pub items: Vec<Value>,
    at: AtomicUsize,
}

impl Cycler {
    pub fn value(items: Vec<Value>) -> Result<Value, Error> {
        if items.is_empty() {
            return Err(limits::refuse("at least one item has to be provided"));
        }
        Ok(Value::from_object(Cycler { items, at: AtomicUsize::new(0) }))
    }

    fn current(&self) -> Value {
        self.items[self.at.load(Ordering::Relaxed)].clone()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "current" => Some(self.current()),
            "pos" => Some(Value::from(self.at.load(Ordering::Relaxed))),
            _ => None,
        }
    }
    fn call_method(self: &Arc<Self>, _: &mut State, name: &str, args: &[Value]) -> Result<Value, Error> {
        match name {
            "next" | "reset" => Arguments::bind(name, &[], args)?,
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        };
        if name == "reset" {
            self.at.store(0, Ordering::Relaxed);
            return Ok(Value::from(()));
        }
        let current = self.current();
        self.at.store((self.at.load(Ordering::Relaxed) + 1) % self.items.len(), Ordering::Relaxed);
        Ok(current)
    }
}

/// `joiner(sep)`: called, it gives nothing the first time and the separator afterwards.
#[derive(Debug)]
pub struct Joiner {
    separator: String,
    used: AtomicBool,
}

impl Joiner {
    pub fn value(separator: String) -> Value {
        Value::from_object(Joiner { separator, used: AtomicBool::new(false) })
    }
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn call(self: &Arc<Self>, _: &mut State, args: &[Value]) -> Result<Value, Error> {
        Arguments::bind("joiner", &[], args)?;
        Ok(Value::from(if self.used.swap(true, Ordering::Relaxed) { self.separator.as_str() } else { "" }))
    }
}

/// Appends `repr(value)` of an iterator. What a generator holds is shown, where Python shows its address.
pub fn push_repr(out: &mut String, value: &Value) -> Result<bool, Error> {
    if let Some(Range { start, stop, step, .. }) = value.downcast_object_ref() {
        let step = if *step == 1 { String::new() } else { format!(", {step}") };
        out.push_str(&format!("range({start}, {stop}{step})"));
        return Ok(true);
    }
    let (name, items) = match (value.downcast_object_ref::<Generator>(), value.downcast_object_ref::<View>()) {
        (Some(generator), _) => ("", generator.rest()),
        (_, Some(view)) => (view.name, view.items.clone()),
        _ => return Ok(false),
    };
    let list = Value::from(items);
    if name.is_empty() {
        python::push_repr(out, &list)?;
    } else {
        out.push_str(&format!("dict_{name}("));
        python::push_repr(out, &list)?;
        out.push(')');
    }
    Ok(true)
}

/// How many numbers a range has, which need not be looked at.
pub fn numbers_inside(value: &Value) -> Option<usize> {
    value.downcast_object_ref::<Range>().map(|range| range.length)
}

/// The values inside one, for counting, without taking any from an iterator.
pub fn inside(value: &Value) -> Option<Vec<Value>> {
    value
        .downcast_object_ref::<Generator>()
        .map(Generator::rest)
        .or_else(|| value.downcast_object_ref::<Cycler>().map(|cycler| cycler.items.clone()))
}

pub fn is_range(value: &Value) -> bool {
    value.downcast_object_ref::<Range>().is_some()
}

/// What a for loop goes over: a list in place of an iterator, so that the loop knows its length.
pub fn for_loop(value: &Value) -> Result<Value, Error> {
    let is_lazy = value.kind() == ValueKind::Iterable && value.downcast_object_ref::<Generator>().is_some();
    Ok(if is_lazy { Value::from(values::items(value)?) } else { value.clone() })
}
