//! Functions that a template can call.

use super::arguments::Arguments;
use super::objects::{Cycler, Joiner, Range};
use super::{python, values};
use crate::limits::refuse;
use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, Value};

type Function = (&'static str, &'static [&'static str], fn(&Arguments) -> Result<Value, Error>);

const ALL: [Function; 6] = [
    ("cycler", &["*"], |args| Cycler::value(args.further.clone())),
    ("dict", &["/from", "*"], dict),
    ("joiner", &["sep"], |args| args.as_text(0, ", ").map(Joiner::value)),
    ("raise_exception", &["message"], |args| Err(refuse(python::text_of(args.required(0)?)?))),
    ("range", &["/start", "/stop", "/step"], |args| {
        args.required(0)?;
        let integer = |place| {
            let number = args.integer(place)?.map(i64::try_from).transpose();
            number.map_err(|_| refuse("range() wants smaller numbers"))
        };
        match (integer(0)?, integer(1)?, integer(2)?.unwrap_or(1)) {
            (first, Some(stop), step) => Range::value(first.unwrap_or(0), stop, step),
            (stop, None, step) => Range::value(0, stop.unwrap_or(0), step),
        }
    }),
    ("strftime_now", &["format"], |args| strftime_now(args.text(0)?).map(Value::from)),
];

pub fn register(env: &mut Environment<'_>) {
    env.remove_global("debug");
    for (name, parameters, function) in ALL {
        env.add_function(name, move |args: Rest<ValueOrKwargs>| {
            function(&Arguments::bind(name, parameters, &args.into_values())?)
        });
    }
}

/// Of a mapping or pairs, and named values.
fn dict(args: &Arguments) -> Result<Value, Error> {
    let given = args.given(0).cloned().unwrap_or_default();
    let mut pairs = match given.kind() {
        ValueKind::Map => values::pairs(&given)?,
        _ => {
            let pair = |item: Value| match values::items(&item)?.as_slice() {
                [key, value] => Ok((key.clone(), value.clone())),
                _ => Err(refuse("dict() wants a mapping or pairs")),
            };
            values::items(&given)?.into_iter().map(pair).collect::<Result<Vec<_>, Error>>()?
        }
    };
    pairs.extend(args.named.iter().map(|(name, value)| (Value::from(name.as_str()), value.clone())));
    Ok(Value::from_pairs(pairs))
}

/// The local time in C's `strftime` notation, which is what Python's `datetime.strftime` uses.
fn strftime_now(pattern: &str) -> Result<String, Error> {
    let pattern = std::ffi::CString::new(pattern).map_err(|_| refuse("strftime_now: the format holds a zero byte"))?;
    let mut buffer = [0u8; 1024];
    // Safety: the pointers are to live locals of the sizes given.
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut parts);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), pattern.as_ptr(), &parts)
    };
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}
