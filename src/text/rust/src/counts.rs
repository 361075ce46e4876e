//! Counts the values of a `tokenizer.json` before any of them is kept: the library holds up to 700 bytes for 3 bytes of
//! the file, several times over.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Entries of a vocabulary, merges, and added tokens. The largest vocabulary in use has 901,629.
const MAX_ENTRIES: usize = 1 << 21;
/// Values below an entry: a merge is a list of two, an added token has seven fields.
const MAX_PER_ENTRY: usize = 16;
/// Values of the post-processor, whose template may name MAX_ADDED_IDS tokens (checks.rs).
const MAX_PROCESSOR_VALUES: usize = 1 << 19;
/// Values of each other part. Those in use have fewer than 100.
const MAX_VALUES: usize = 1 << 16;

/// Any value, whose parts are counted up to `left`.
struct Values<'a> {
    what: &'a str,
    most: usize,
    left: &'a mut usize,
}

impl Values<'_> {
    fn take<E: Error>(&mut self) -> Result<(), E> {
        *self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| E::custom(format!("{} has more than {} values", self.what, self.most)))?;
        Ok(())
    }

    fn inner(&mut self) -> Values<'_> {
        Values { what: self.what, most: self.most, left: self.left }
    }
}

impl<'de> DeserializeSeed<'de> for Values<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        self.take()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.inner())?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(self.inner())?;
        }
        Ok(())
    }
}

/// A list or an object with at most MAX_ENTRIES entries, none of which is large; or null. Gives the length of a list.
struct Entries<'a>(&'a str);

impl Entries<'_> {
    fn check<E: Error>(&self, entries: usize) -> Result<(), E> {
        if entries > MAX_ENTRIES {
            return Err(E::custom(format!("{} has more than {MAX_ENTRIES} entries", self.0)));
        }
        Ok(())
    }
}

macro_rules! entry {
    ($name:expr, $left:ident) => {{
        $left = MAX_PER_ENTRY;
        Values { what: $name, most: MAX_PER_ENTRY, left: &mut $left }
    }};
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = usize;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a list or an object as {}", self.0)
    }
    fn visit_unit<E: Error>(self) -> Result<usize, E> {
        Ok(0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let (mut count, mut left);
        count = 0;
        loop {
            if items.next_element_seed(entry!(self.0, left))?.is_none() {
                return Ok(count);
            }
            count += 1;
            self.check(count)?;
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<usize, A::Error> {
        let (mut count, mut left);
        count = 0;
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(entry!(self.0, left))?;
            count += 1;
            self.check(count)?;
        }
        Ok(0)
    }
}

/// The fields of the file, or those of its model. Gives the length of a vocabulary that is a list.
struct Fields {
    is_model: bool,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = usize;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(if self.is_model { "an object as model" } else { "an object" })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<usize, A::Error> {
        let mut vocabulary = 0;
        while let Some(key) = fields.next_key::<String>()? {
            match (self.is_model, &*key) {
                (true, "vocab") => vocabulary = fields.next_value_seed(Entries(&key))?,
                (true, "merges") | (false, "added_tokens") => {
                    fields.next_value_seed(Entries(&key))?;
                }
                (false, "model") => vocabulary = fields.next_value_seed(Fields { is_model: true })?,
                _ => {
                    let most = if key == "post_processor" { MAX_PROCESSOR_VALUES } else { MAX_VALUES };
                    let mut left = most;
                    fields.next_value_seed(Values { what: &key, most, left: &mut left })?;
                }
            }
        }
        Ok(vocabulary)
    }
}

/// Keeps nothing of the file. Returns the pieces of a vocabulary that is a list, as that of Unigram is; 0 for others.
pub fn check_counts(bytes: &[u8]) -> Result<usize, String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let pieces = Fields { is_model: false }.deserialize(&mut reader).map_err(|e| e.to_string())?;
    reader.end().map_err(|e| e.to_string())?;
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: String) -> String {
        check_counts(text.as_bytes()).err().unwrap_or_default()
    }

    #[test]
    fn counts_are_bounded() {
        let list = |item: &str, times: usize| format!("[{}]", vec![item; times].join(","));
        assert_eq!(error(format!(r#"{{"normalizer": {}}}"#, list("[]", MAX_VALUES - 1))), "");
        assert!(error(format!(r#"{{"normalizer": {}}}"#, list("[]", MAX_VALUES))).contains("normalizer has more than"));
        assert!(error(format!(r#"{{"new": {}}}"#, list("{}", MAX_VALUES))).contains("new has more than"));
        assert_eq!(error(format!(r#"{{"model": {{"merges": {}}}}}"#, list("0", MAX_ENTRIES))), "");
        assert!(error(format!(r#"{{"model": {{"vocab": {}}}}}"#, list("0", MAX_ENTRIES + 1))).contains("vocab has"));
        assert!(error(format!(r#"{{"model": {{"unk": {}}}}}"#, list("0", MAX_VALUES))).contains("unk has"));
        assert!(error(format!(r#"{{"added_tokens": [{}]}}"#, list("0", MAX_PER_ENTRY))).contains("added_tokens has"));
        assert!(error(list("[", 200)).contains("an object"));
        assert!(error("{} {}".into()).contains("trailing"));
        assert_eq!(check_counts(br#"{"model": {"vocab": [["a", 0], ["b", 1]]}, "x": 0}"#), Ok(2));
        assert_eq!(check_counts(br#"{"model": {"vocab": {"a": 0}}}"#), Ok(0));
        assert_eq!(error(r#"{"a": [1, -1, 1.5, "x\n", null, true, {"b": "c"}], "model": {"vocab": null}}"#.into()), "");
    }
}
