//! What of Lark is refused before llguidance reads it. It checks the syntax; here are the parts that would mean less
//! than they say.

use super::schema;
use serde_json::{Deserializer, Value};

/// The JSON values behind a keyword.
fn values_after<'a>(source: &'a str, keyword: &'static str) -> impl Iterator<Item = Value> + 'a {
    // A text or a comment with the same words in it is checked as well, which does no harm.
    source.match_indices(keyword).filter_map(move |(start, _)| {
        let rest = &source[start + keyword.len()..];
        Deserializer::from_str(rest).into_iter::<Value>().next()?.ok()
    })
}

/// "name[temperature=0.5]: ..." The library tells of a temperature only if it is not 0.
fn has_temperature(line: &str) -> bool {
    let header = line.split_once(']').and_then(|(header, _)| header.split_once('['));
    let is_name = |name: &str| name.trim().chars().all(|c| c.is_ascii_alphanumeric() || "_!?-:".contains(c));
    header.is_some_and(|(name, attributes)| is_name(name) && attributes.contains("temperature"))
}

pub fn check(source: &str) -> Result<(), String> {
    values_after(source, "%json")
        .try_for_each(|value| schema::check_embedded(&value).map_err(|e| format!("%json {e}")))?;
    if source.lines().any(has_temperature) {
        return Err("temperature= is not supported".into());
    }
    for value in values_after(source, "%llguidance") {
        let known = ["allow_initial_skip", "ignore_once", "no_forcing"];
        let unknown = value.as_object().into_iter().flatten().find(|(name, _)| !known.contains(&name.as_str()));
        if let Some((name, _)) = unknown {
            return Err(format!("%llguidance: '{name}' is not supported"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures() {
        for line in ["a[temperature=0]: /x/", "!a [ lazy, temperature = 1 ] : b", "a::_[temperature=0]: /x/"] {
            assert!(has_temperature(line), "{line}");
        }
        for line in ["start: \"[temperature=\" N \"]\"", "a: /[temperature=]/", "a[lazy]: temperature", "// ["] {
            assert!(!has_temperature(line), "{line}");
        }
    }

    #[test]
    fn json_anywhere() {
        assert!(check("start: %json\n {\"typ\\u0065\": \"null\"}").is_ok());
        assert!(check("start: %json\n {\"n\\u006ft\": {}}").is_err());
        assert!(check("start: \"%json\" x").is_ok());
        assert!(check("%llguidance {\"no_forcing\": true}\nstart: \"a\"").is_ok());
    }
}
