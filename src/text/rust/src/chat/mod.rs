//! Renders Hugging Face chat templates (Jinja2) within fixed limits of time and memory.

mod arguments;
mod characters;
mod filters;
mod format;
mod globals;
mod methods;
mod numbers;
mod objects;
mod operators;
mod predicates;
mod python;
mod rewrite;
mod values;

pub use objects::{inside, numbers_inside};

use crate::ffi::{self, Text};
use crate::job::{self, Stop};
use crate::limits;
use minijinja::machinery::{eval, make_string_output, parse, CodeGenerator};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, Value};
use std::borrow::Cow;

/// Room for the parser on the deepest text of MAX_TEMPLATE_BYTES, which takes about 160 bytes per byte of template.
/// Pages that are not touched cost nothing.
const STACK_BYTES: usize = 256 << 20;

/// `{% generation %}` marks what an assistant wrote, for training. It changes no text, so it becomes `{% if true %}`,
/// which keeps the whitespace rules of a block.
fn plain_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        // Behind its beginning: "{%}" is no end.
        let Some(size) = tag[2..].find("%}") else {
            rest = tag;
            break;
        };
        let (inside, end) = (&tag[2..2 + size], 2 + size);
        let replacement = match inside.trim_matches(['-', '+']).trim() {
            "generation" => inside.replace("generation", "if true"),
            "endgeneration" => inside.replace("endgeneration", "endif"),
            _ => {
                out.push_str("{%");
                rest = &tag[2..];
                continue;
            }
        };
        out.extend(["{%", &replacement, "%}"]);
        rest = &tag[end + 2..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn describe(error: &Error) -> String {
    let line = error.line().map_or(String::new(), |line| format!(" (line {line})"));
    let mut text = match error.detail() {
        Some(detail) => format!("chat template: {detail}{line}"),
        None => format!("chat template: {}{line}", error.kind()),
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

fn render(source: &str, messages: &str, variables: &str) -> Result<String, String> {
    let parse_json = |text: &str, what: &str| -> Result<Value, String> {
        serde_json::from_str(text).map_err(|e| format!("chat template: {what}: {e}"))
    };
    let messages = parse_json(messages, "messages")?;
    let variables = parse_json(variables, "variables")?;
    if !variables.is_none() && variables.kind() != minijinja::value::ValueKind::Map {
        return Err("chat template: variables: a JSON object or null is expected".into());
    }
    let context = minijinja::context! { messages => messages, ..variables };

    // As in transformers: trim_blocks and lstrip_blocks.
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    let syntax = syntax.map_err(|e| describe(&e))?;
    let tree = parse(source, "chat_template", syntax).map_err(|e| describe(&e))?;
    let tree = rewrite::template(&tree).map_err(|e| format!("chat template: {e}"))?;
    let mut generator = CodeGenerator::new("chat_template", source);
    generator.compile_stmt(&tree);
    let (instructions, blocks) = generator.finish();

    let mut env = Environment::new();
    env.set_fuel(Some(limits::FUEL));
    env.set_formatter(|out, state, value| {
        limits::tick()?;
        let mut text = String::new();
        match state.auto_escape() {
            AutoEscape::None => python::push_str(&mut text, value)?,
            _ => python::push_str(&mut text, &filters::escaped(value)?)?,
        }
        out.write_str(&text).map_err(Error::from)
    });
    operators::register(&mut env);
    filters::register(&mut env);
    predicates::register(&mut env);
    globals::register(&mut env);
    env.set_unknown_method_callback(methods::method);
    let mut text = String::new();
    let mut out = make_string_output(&mut text);
    eval(&env, &instructions, context, &blocks, &mut out, AutoEscape::None).map_err(|e| describe(&e))?;
    Ok(text)
}

/// Runs `render` on a thread of its own: its memory is counted from zero and its stack has a known size.
///
/// Safety: `stop` is as `situ_text.h` says.
unsafe fn render_bounded(source: &str, messages: &str, variables: &str, stop: *const Stop) -> Result<String, String> {
    if source.len() > limits::MAX_TEMPLATE_BYTES {
        return Err(format!("chat template: {} bytes, the limit is {}", source.len(), limits::MAX_TEMPLATE_BYTES));
    }
    // Jinja2 reads every kind of line end as \n.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = plain_generation_tags(&source).into_owned();
    let (messages, variables) = (messages.to_string(), variables.to_string());
    let input_bytes = messages.len() + variables.len();
    // The template's own checks come first: they name what it did.
    let bounds = job::Bounds {
        what: "the chat template",
        time: 2 * limits::MAX_TIME,
        memory: 2 * limits::MAX_LIVE_BYTES as usize + limits::PER_INPUT_BYTE.saturating_mul(input_bytes),
        stack: STACK_BYTES,
    };
    job::run(bounds, stop, move || {
        limits::begin(input_bytes);
        render(&source, &messages, &variables)
    })
}

/// Safety: the arguments are as `situ_text.h` says.
#[no_mangle]
pub unsafe extern "C" fn situ_text_render_chat(
    template: *const u8,
    template_size: usize,
    messages: *const u8,
    messages_size: usize,
    variables: *const u8,
    variables_size: usize,
    stop: *const Stop,
    out: *mut Text,
    error: *mut Text,
) -> i32 {
    ffi::guarded(error, || {
        let template = ffi::utf8(template, template_size, "the chat template")?;
        let messages = ffi::utf8(messages, messages_size, "the messages")?;
        let variables = ffi::utf8(variables, variables_size, "the template variables")?;
        ffi::put_text(out, render_bounded(template, messages, variables, stop)?);
        Ok(())
    })
}

#[cfg(test)]
mod tests;
