//! Where the reason of a refusal stands in a JSON schema. llguidance says what is wrong, and not where: the place is
//! the smallest part of the schema that is refused by itself, and without which the whole would not be, or not for that.

use super::schema::Schema;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Of trying parts, beside one of them. A larger part is named then.
const MAX_TIME: Duration = Duration::from_secs(1);
const ROOT: &str = "#";

/// A part and its JSON pointer.
type Part = (String, Value);

/// The JSON pointer of a member.
pub fn below(at: &str, key: impl std::fmt::Display) -> String {
    format!("{at}/{}", key.to_string().replace('~', "~0").replace('/', "~1"))
}

/// The schemas right below one, beside its definitions.
fn parts(at: &str, schema: &Value) -> Vec<Part> {
    let mut all = Vec::new();
    for (name, value) in schema.as_object().into_iter().flatten() {
        let here = below(at, name);
        match name.as_str() {
            "properties" | "patternProperties" => {
                all.extend(value.as_object().into_iter().flatten().map(|(key, v)| (below(&here, key), v.clone())))
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" | "items" if value.is_array() => {
                let items = value.as_array().into_iter().flatten().enumerate();
                all.extend(items.map(|(index, v)| (below(&here, index), v.clone())));
            }
            "items" | "additionalItems" | "additionalProperties" => all.push((here, value.clone())),
            _ => {}
        }
    }
    all
}

/// Parts of one keyword each. A keyword means little without the type that it belongs to.
fn keywords(at: &str, schema: &Value) -> Vec<Part> {
    let fields = schema.as_object().cloned().unwrap_or_default();
    let alone = |(name, value): (&String, &Value)| {
        let mut part = Map::new();
        part.extend(fields.get("type").map(|kind| ("type".to_string(), kind.clone())));
        part.insert(name.clone(), value.clone());
        (below(at, name), Value::Object(part))
    };
    fields.iter().filter(|(name, _)| *name != "$ref" && *name != "$defs").map(alone).collect()
}

/// Refers to the definition `name` where a part refers to the whole: alone, it would refer to itself.
fn name_root(schema: &mut Value, name: &str) {
    for (keyword, value) in schema.as_object_mut().into_iter().flatten() {
        match (keyword.as_str(), &mut *value) {
            ("$ref", Value::String(target)) if target == ROOT => *target = format!("{ROOT}/$defs/{name}"),
            ("$defs" | "properties" | "patternProperties", Value::Object(members)) => {
                members.values_mut().for_each(|member| name_root(member, name))
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(items)) => {
                items.iter_mut().for_each(|item| name_root(item, name))
            }
            ("items" | "additionalItems" | "additionalProperties", value) => name_root(value, name),
            _ => {}
        }
    }
}

fn refers(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key("$ref") || fields.values().any(refers),
        Value::Array(items) => items.iter().any(refers),
        _ => false,
    }
}

struct Search<'a> {
    /// With the whole among them.
    definitions: Map<String, Value>,
    /// Their JSON pointers.
    places: HashMap<String, String>,
    seen: HashSet<String>,
    reason_of: &'a dyn Fn(&Value) -> Option<String>,
    end: Instant,
}

impl Search<'_> {
    /// What a part refers to.
    fn target(&self, part: &Value) -> Option<Part> {
        let name = part.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        Some((self.places.get(name)?.clone(), self.definitions.get(name)?.clone()))
    }

    /// Why a schema is refused, with the definitions of the whole.
    fn reason(&self, schema: &Value) -> Option<String> {
        if Instant::now() > self.end {
            return None;
        }
        let mut schema = schema.clone();
        if refers(&schema) {
            schema["$defs"] = Value::Object(self.definitions.clone());
        }
        (self.reason_of)(&schema)
    }

    /// Whether `part` of `schema` is why it is refused, and the part's own reason.
    fn cause(&self, found: &Found, part: &Part) -> Option<String> {
        // A mere reference to what was looked at already tells nothing.
        let is_mere = part.1.as_object().is_some_and(|fields| fields.len() == 1);
        if is_mere && self.target(&part.1).is_some_and(|(place, _)| self.seen.contains(&place)) {
            return None;
        }
        let own = self.reason(&part.1)?;
        let without = || {
            let mut schema = found.schema.clone();
            *schema.pointer_mut(part.0.strip_prefix(&found.at)?)? = Value::Bool(true);
            (self.reason(&schema)? == found.reason).then_some(())
        };
        (own == found.reason || without().is_none()).then_some(own)
    }

    fn first(&self, found: &Found, parts: Vec<Part>) -> Option<Found> {
        let cause = |part: Part| self.cause(found, &part).map(|reason| Found { at: part.0, schema: part.1, reason });
        parts.into_iter().find_map(cause)
    }
}

/// A part that is refused, and why.
struct Found {
    at: String,
    schema: Value,
    reason: String,
}

/// As `find`, without a search.
pub fn whole(reason: &str) -> (String, String) {
    (ROOT.into(), reason.into())
}

/// The place, and why the part there is refused. `reason`: why the whole is. reason_of: why a schema is, if it is.
pub fn find(whole: &Schema, reason: String, reason_of: &dyn Fn(&Value) -> Option<String>) -> (String, String) {
    let mut found = Found { at: ROOT.to_string(), schema: whole.root.clone(), reason };
    let mut name = "root".to_string();
    while whole.origins.contains_key(&name) {
        name.push('_');
    }
    name_root(&mut found.schema, &name);
    let mut definitions = found.schema["$defs"].as_object().cloned().unwrap_or_default();
    found.schema.as_object_mut().map(|fields| fields.remove("$defs"));
    definitions.insert(name.clone(), found.schema.clone());
    let mut places: HashMap<String, String> =
        whole.origins.iter().map(|(name, pointer)| (name.clone(), format!("{ROOT}{pointer}"))).collect();
    places.insert(name, ROOT.into());
    let seen = HashSet::from([ROOT.to_string()]);
    let mut search = Search { definitions, places, seen, reason_of, end: Instant::now() + MAX_TIME };
    loop {
        let target = search.target(&found.schema).filter(|(place, _)| !search.seen.contains(place));
        let candidates = target.iter().cloned().chain(parts(&found.at, &found.schema)).collect();
        let Some(next) = search.first(&found, candidates) else { break };
        search.seen.extend(target.map(|(place, _)| place));
        found = next;
    }
    let alone = search.first(&found, keywords(&found.at, &found.schema));
    let Found { at, reason, .. } = alone.filter(|keyword| keyword.reason == found.reason).unwrap_or(found);
    (at, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the number 13 stands.
    fn found(source: &str) -> String {
        fn has(value: &Value) -> bool {
            match value {
                Value::Object(fields) => fields.values().any(has),
                Value::Array(items) => items.iter().any(has),
                value => *value == 13,
            }
        }
        fn reaches(part: &Value, whole: &Value, depth: usize) -> bool {
            let name = part["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"));
            let mut own = part.clone();
            own.as_object_mut().map(|fields| fields.remove("$defs"));
            let further = |part: &Value| depth > 0 && reaches(part, whole, depth - 1);
            let below = || parts("", part).iter().any(|(_, part)| further(part));
            has(&own) || name.is_some_and(|name| further(&whole["$defs"][name])) || below()
        }
        let reason_of = |part: &Value| reaches(part, part, 9).then(|| "13".to_string());
        find(&Schema::new(source).unwrap(), "13".into(), &reason_of).0
    }

    #[test]
    fn places() {
        for (source, place) in [
            (r#"{"minimum": 13}"#, "#/minimum"),
            (r#"{"properties": {"a": {}, "b/c": {"type": "integer", "minimum": 13}}}"#, "#/properties/b~1c/minimum"),
            (r#"{"anyOf": [{}, {"items": {"enum": [13]}}]}"#, "#/anyOf/1/items/enum"),
            (
                r##"{"items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"const": 13}}}"##,
                "#/definitions/a/const",
            ),
            (r##"{"properties": {"a": {"$ref": "#"}, "b": {"const": 13}}}"##, "#/properties/b/const"),
            (
                r##"{"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/root"}],
                     "$defs": {"root": {"anyOf": [{"$ref": "#/$defs/root"}, {"const": 13}]}}}"##,
                "#/$defs/root/anyOf/1/const",
            ),
        ] {
            assert_eq!(found(source), place, "{source}");
        }
    }
}
