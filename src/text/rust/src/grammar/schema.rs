//! What of JSON Schema is let through to llguidance. It takes a keyword that it does not know for an annotation, and
//! which ones it knows depends on `$schema`; here a keyword is obeyed, or an annotation, or an error that names it.
//!
//! What comes out has no `$schema`, no annotations, and every target of a `$ref` right below `$defs`.

use super::place::below;
use llguidance::regex_to_lark;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// They allow no answer more or less. Everything that is in no list of this file is an error.
const ANNOTATIONS: [&str; 30] = [
    "$anchor",
    "$comment",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$schema",
    "$vocabulary",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "defaultSnippets",
    "deprecated",
    "deprecationMessage",
    "description",
    "discriminator",
    "doNotSuggest",
    "enumDescriptions",
    "enumNames",
    "errorMessage",
    "example",
    "examples",
    "externalDocs",
    "markdownDescription",
    "markdownEnumDescriptions",
    "nullable",
    "propertyOrdering",
    "readOnly",
    "title",
    "writeOnly",
    "xml",
];
/// llguidance checks the values of these.
const PLAIN: [&str; 15] = [
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "required",
    "type",
];
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// What llguidance obeys beside the keywords of JSON Schema.
const OWN: &str = "x-guidance";

/// The formats of texts that llguidance obeys.
const TEXT_FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];
/// Formats of OpenAPI that say how a text is used, not how it reads.
const TEXT_ANNOTATIONS: [&str; 3] = ["binary", "byte", "password"];
/// Formats of numbers in OpenAPI's registry and its likes: how a program keeps the number. They forbid no digits.
const NUMBER_ANNOTATIONS: [&str; 21] = [
    "decimal",
    "decimal128",
    "double",
    "double-int",
    "float",
    "float16",
    "float32",
    "float64",
    "int",
    "int16",
    "int32",
    "int64",
    "int8",
    "long",
    "uint",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unix-time",
    "unixtime",
];

/// llguidance reads numbers as 64 bit floats.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// With every target of a `$ref` counted once more. llguidance itself stops at 50,000 schemas.
const MAX_NODES: usize = 100_000;
/// llguidance lets any number of spaces stand between two tokens, and small models like to go on with them for ever.
/// This is an indentation of 16 levels.
const WHITESPACE: &str = r"[\x20\x0A\x0D\x09]{1,32}";

type Checked<T> = Result<T, String>;

fn refuse<T>(at: &str, what: impl std::fmt::Display) -> Checked<T> {
    Err(format!("at {at}: {what}"))
}

/// The fragment of a URI as text.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn check_exact(value: &Value, at: &str) -> Checked<()> {
    match value {
        Value::Number(number) if number.as_f64().is_none_or(|x| x.abs() >= MAX_EXACT) => {
            refuse(at, format_args!("the number {number} is too large to be exact"))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_exact(item, at)),
        Value::Object(fields) => fields.values().try_for_each(|field| check_exact(field, at)),
        _ => Ok(()),
    }
}

fn check_pattern(pattern: &str, at: &str) -> Checked<()> {
    super::check_regex(&regex_to_lark(pattern, "dw"), true).map_err(|e| format!("at {at}: {e}"))
}

/// "integer" or ["string", "null"]; no type means every type.
fn allows(schema: &Map<String, Value>, wanted: &[&str]) -> bool {
    let is_wanted = |name: &Value| name.as_str().is_some_and(|name| wanted.contains(&name));
    match schema.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().any(is_wanted),
        Some(name) => is_wanted(name),
    }
}

/// Nothing for a format that no value of the schema's types can fail to have.
fn format(value: &Value, schema: &Map<String, Value>, at: &str) -> Checked<Option<Value>> {
    let Some(name) = value.as_str() else { return refuse(at, "must be a text") };
    let (strings, numbers) = (allows(schema, &["string"]), allows(schema, &["integer", "number"]));
    match name {
        name if TEXT_FORMATS.contains(&name) => Ok(strings.then(|| value.clone())),
        name if strings && TEXT_ANNOTATIONS.contains(&name) => Ok(None),
        name if numbers && NUMBER_ANNOTATIONS.contains(&name) => Ok(None),
        name => refuse(at, format_args!("Unknown format: {name}")),
    }
}

struct Checker<'a> {
    root: &'a Value,
    /// Part of a Lark grammar, where nothing of it can be changed.
    embedded: bool,
    /// From the pointer of a target to its name below `$defs`.
    names: HashMap<String, String>,
    taken: HashSet<String>,
    pending: Vec<String>,
    nodes: usize,
}

impl Checker<'_> {
    fn schema(&mut self, value: &Value, at: &str) -> Checked<Value> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(format!("the schema has more than {MAX_NODES} parts"));
        }
        let Value::Object(fields) = value else {
            return if value.is_boolean() {
                Ok(value.clone())
            } else {
                refuse(at, "a schema is an object or a boolean")
            };
        };
        let mut checked = Map::new();
        for (name, field) in fields {
            if let Some(field) = self.keyword(name, field, fields, at)? {
                checked.insert(name.clone(), field);
            }
        }
        Ok(Value::Object(checked))
    }

    /// Nothing for a keyword that can be left out.
    fn keyword(&mut self, name: &str, value: &Value, schema: &Map<String, Value>, at: &str) -> Checked<Option<Value>> {
        let here = below(at, name);
        match name {
            "$ref" => self.reference(value, &here).map(Some),
            "$schema" | "$id" | "id" if self.embedded => {
                refuse(&here, format_args!("'{name}' inside %json is not supported"))
            }
            "$id" | "id" if at != "#" => refuse(&here, format_args!("'{name}' below the root is not supported")),
            "$id" | "id" => Ok(None),
            "uniqueItems" if *value == Value::Bool(false) && !self.embedded => Ok(None),
            name if ANNOTATIONS.contains(&name) || (name.starts_with("x-") && name != OWN) => Ok(None),
            name if DEFINITIONS.contains(&name) => {
                self.members(value, &here)?;
                Ok(None)
            }
            "properties" => self.members(value, &here).map(Some),
            "patternProperties" => {
                for pattern in value.as_object().into_iter().flat_map(Map::keys) {
                    check_pattern(pattern, &here)?;
                }
                self.members(value, &here).map(Some)
            }
            "prefixItems"
                if schema.contains_key("additionalItems") || schema.get("items").is_some_and(Value::is_array) =>
            {
                refuse(&here, "'prefixItems' beside the 'items' or 'additionalItems' of older drafts is not supported")
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.list(value, &here).map(Some),
            "items" if value.is_array() => self.list(value, &here).map(Some),
            "items" | "additionalItems" | "additionalProperties" => self.schema(value, &here).map(Some),
            "pattern" => {
                check_pattern(value.as_str().unwrap_or_default(), &here)?;
                Ok(Some(value.clone()))
            }
            "format" => match format(value, schema, &here)? {
                None if self.embedded && allows(schema, &["string"]) => {
                    refuse(&here, format_args!("the format {value} inside %json is not supported"))
                }
                format => Ok(format),
            },
            "multipleOf" if value.as_f64().is_none_or(|x| x <= 0.0) => refuse(&here, "'multipleOf' must be above 0"),
            name if PLAIN.contains(&name) => {
                check_exact(value, &here)?;
                Ok(Some(value.clone()))
            }
            _ => refuse(at, format_args!("the keyword '{name}' is not supported")),
        }
    }

    fn members(&mut self, value: &Value, at: &str) -> Checked<Value> {
        let Some(fields) = value.as_object() else { return refuse(at, "must be an object") };
        let member = |(name, field): (&String, &Value)| Ok((name.clone(), self.schema(field, &below(at, name))?));
        fields.iter().map(member).collect::<Checked<Map<_, _>>>().map(Value::Object)
    }

    fn list(&mut self, value: &Value, at: &str) -> Checked<Value> {
        let Some(items) = value.as_array() else { return refuse(at, "must be an array") };
        let item = |(index, item)| self.schema(item, &below(at, index));
        items.iter().enumerate().map(item).collect::<Checked<Vec<_>>>().map(Value::Array)
    }

    fn reference(&mut self, value: &Value, at: &str) -> Checked<Value> {
        let Some(reference) = value.as_str() else { return refuse(at, "'$ref' must be a text") };
        let fragment = reference.strip_prefix('#').filter(|fragment| fragment.is_empty() || fragment.starts_with('/'));
        let Some(fragment) = fragment else {
            return refuse(
                at,
                format_args!("'{reference}' is not a place in this schema (#/...); nothing else is read"),
            );
        };
        if fragment.is_empty() {
            return Ok(value.clone());
        }
        if self.embedded && fragment.contains(['~', '%']) {
            return refuse(at, format_args!("'{reference}' inside %json is not supported"));
        }
        let pointer = percent_decoded(fragment).filter(|pointer| self.root.pointer(pointer).is_some());
        let Some(pointer) = pointer else { return refuse(at, format_args!("there is no '{reference}'")) };
        Ok(Value::String(format!("#/$defs/{}", self.name_of(pointer))))
    }

    /// The last part of the pointer, as far as it is free.
    fn name_of(&mut self, pointer: String) -> String {
        if let Some(name) = self.names.get(&pointer) {
            return name.clone();
        }
        let last = pointer.rsplit('/').next().unwrap_or_default().replace(['~', '%'], "_");
        let mut name = last.clone();
        while name.is_empty() || !self.taken.insert(name.clone()) {
            name = format!("{last}_{}", self.taken.len());
        }
        self.pending.push(pointer.clone());
        self.names.insert(pointer, name.clone());
        name
    }

    fn definitions(&mut self) -> Checked<Map<String, Value>> {
        let root = self.root;
        let mut definitions = Map::new();
        while let Some(pointer) = self.pending.pop() {
            let target = root.pointer(&pointer).expect("looked up by reference()");
            let checked = self.schema(target, &format!("#{pointer}"))?;
            definitions.insert(self.names[&pointer].clone(), checked);
        }
        Ok(definitions)
    }
}

/// The schema, and where the definitions of its `$defs` stood, as JSON pointers.
fn checked(root: &Value, embedded: bool) -> Checked<(Value, HashMap<String, String>)> {
    let mut checker =
        Checker { root, embedded, names: HashMap::new(), taken: HashSet::new(), pending: Vec::new(), nodes: 0 };
    let mut schema = checker.schema(root, "#")?;
    let definitions = checker.definitions()?;
    if let Value::Object(fields) = &mut schema {
        fields.insert("$defs".into(), Value::Object(definitions));
    }
    Ok((schema, checker.names.into_iter().map(|(pointer, name)| (name, pointer)).collect()))
}

/// A schema whose keywords llguidance obeys, all of them.
pub struct Schema {
    pub root: Value,
    /// Where the definitions of its `$defs` stood, as JSON pointers.
    pub origins: HashMap<String, String>,
}

impl Schema {
    pub fn new(source: &str) -> Checked<Self> {
        let root: Value = serde_json::from_str(source).map_err(|e| format!("not valid JSON: {e}"))?;
        let (root, origins) = checked(&root, false)?;
        Ok(Schema { root, origins })
    }
}

/// The schema as llguidance gets it.
pub fn with_spaces(schema: &Value) -> Value {
    let mut schema = if *schema == Value::Bool(true) { Value::Object(Map::new()) } else { schema.clone() };
    if let Value::Object(fields) = &mut schema {
        fields.insert(OWN.into(), serde_json::json!({ "whitespace_pattern": WHITESPACE }));
    }
    schema
}

/// A schema inside a Lark grammar.
pub fn check_embedded(root: &Value) -> Checked<()> {
    checked(root, true).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_move_to_definitions() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "a list",
            "definitions": {"a/b": {"$ref": "#", "description": "again"}, "unused": {}},
            "items": {"$ref": "#/definitions/a~1b"},
            "prefixItems": [{"$ref": "#/definitions/a%7E1b"}, {"$ref": "#/items"}],
        });
        let expected = json!({
            "items": {"$ref": "#/$defs/a_1b"},
            "prefixItems": [{"$ref": "#/$defs/a_1b"}, {"$ref": "#/$defs/items"}],
            "$defs": {"a_1b": {"$ref": "#"}, "items": {"$ref": "#/$defs/a_1b"}},
        });
        let (checked, origins) = checked(&schema, false).unwrap();
        assert_eq!(checked, expected);
        let origins = |name: &str| origins.get(name).map(String::as_str);
        assert_eq!([origins("a_1b"), origins("items")], [Some("/definitions/a~1b"), Some("/items")]);
    }

    #[test]
    fn annotations_are_left_out() {
        let schema = json!({"type": "object", "title": "t", "x-order": 1, "nullable": true, "properties": {
            "a": {"type": "integer", "format": "int32", "markdownDescription": "b", "errorMessage": {"type": "c"}},
            "b": {"type": "string", "format": "byte", "xml": {}, "enumDescriptions": ["d"]},
            "c": {"type": ["number", "null"], "format": "date"},
            "d": {"type": "string", "format": "date"}}, "propertyOrdering": ["a"]});
        let expected = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
            "c": {"type": ["number", "null"]}, "d": {"type": "string", "format": "date"}}, "$defs": {}});
        assert_eq!(checked(&schema, false).unwrap().0, expected);
        for (schema, error) in [
            (json!({"a": {"type": "string", "format": "int32"}}), "at #/properties/a/format: Unknown format: int32"),
            (json!({"a": {"type": "integer", "format": "byte"}}), "at #/properties/a/format: Unknown format: byte"),
            (json!({"a": {"format": "wombat"}}), "at #/properties/a/format: Unknown format: wombat"),
            (json!({"a": {"format": 3}}), "at #/properties/a/format: must be a text"),
            (json!({"a": {"xx-order": 3}}), "at #/properties/a: the keyword 'xx-order' is not supported"),
            (json!({"a": {"x-guidance": {}}}), "at #/properties/a: the keyword 'x-guidance' is not supported"),
        ] {
            assert_eq!(checked(&json!({"properties": schema}), false).unwrap_err(), error);
        }
        assert!(check_embedded(&json!({"x-order": 1, "type": "string", "format": "uuid"})).is_ok());
        assert!(check_embedded(&json!({"type": "integer", "format": "int32"})).is_ok());
        assert!(check_embedded(&json!({"type": "string", "format": "byte"})).is_err());
    }

    #[test]
    fn names_of_keywords_are_free_for_properties() {
        let schema = json!({"properties": {"title": {}, "not": true, "$schema": {"enum": [{"not": 1}]}}, "$defs": {}});
        assert_eq!(checked(&schema, false).unwrap().0, schema);
    }

    #[test]
    fn percents() {
        assert_eq!(percent_decoded("/a%20b%25").as_deref(), Some("/a b%"));
        for broken in ["%", "%4", "%zz", "%FF"] {
            assert_eq!(percent_decoded(broken), None, "{broken}");
        }
    }
}
