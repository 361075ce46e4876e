//! A JSON schema, a regular expression or a Lark grammar to a parser, in bounded time and memory.

use super::schema::{self, Schema};
use super::{clean, lark, place};
use crate::{ffi, limits};
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::derivre::ExprRef;
use llguidance::earley::lexerspec::{LexemeIdx, LexerSpec};
use llguidance::earley::{CGrammar, CSymIdx, Grammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Logger, ParserFactory, TokenParser};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The numbers of `GrammarKind` in `grammar.h`.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    JsonSchema = 0,
    Regex = 1,
    Lark = 2,
    /// Lark whose special tokens (<[id]>) are obeyed: for grammars that are made here, of the marks of a chat template.
    Answer = 3,
}

impl Kind {
    pub fn from_number(number: i32) -> Result<Self, String> {
        let kinds = [Kind::JsonSchema, Kind::Regex, Kind::Lark, Kind::Answer];
        kinds.into_iter().find(|kind| *kind as i32 == number).ok_or_else(|| format!("{number} is no kind of grammar"))
    }

    /// In messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::JsonSchema => "the JSON schema",
            Kind::Regex => "the regular expression",
            Kind::Lark => "the Lark grammar",
            Kind::Answer => "the grammar of the tools",
        }
    }

    fn max_bytes(self) -> usize {
        match self {
            Kind::JsonSchema | Kind::Answer => 512 << 10,
            Kind::Regex | Kind::Lark => 64 << 10,
        }
    }
}

/// A reference from rule to rule, or from schema to schema, is a recursion of the compiler: 5 KB for the 30 bytes that
/// it takes in the source. Only pages that are used become memory.
const STACK_BYTES: usize = 256 << 20;
const MAX_LIVE_BYTES: isize = 512 << 20;
/// A point is one part of an expression that is looked at: 13 ns, and 1.4 bytes if all are new. Schemas need thousands.
const FIRST_BYTE_FUEL: u64 = 20_000_000;
/// What takes longer is not done for parts of a schema too, only to name one.
const MAX_TIME_TO_REPEAT: Duration = Duration::from_millis(500);
const NO_ANSWER: &str = "no answer can ever match it";
/// Of parts in a row that may be left out, as in a?b?c?: one byte leaves every rest of it, which is quadratic.
const MAX_OPTIONAL_RUN: u32 = 500;

fn parser_limits() -> ParserLimits {
    ParserLimits {
        // To take the expressions apart. The largest JSON schemas in use need half of it.
        initial_lexer_fuel: 1_000_000,
        // Some steps are quadratic: 2,000 properties take 1 s.
        max_grammar_size: 20_000,
        // A state takes 1 to 2 KB, and a string that counts its characters has one for each.
        max_lexer_states: 100_000,
        // It would be done for every grammar, and the first masks are no slower without.
        precompute_large_lexemes: false,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Runs `work` on a stack that holds every recursion which the limits allow; the caller's may be small.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, || ffi::caught(work)).map_err(|e| format!("no thread: {e}"))?;
        thread.join().unwrap_or_else(|_| Err("internal failure".into()))
    })
}

/// What the parser would take and not obey, or could not take back.
fn check_spec(spec: &LexerSpec, special_tokens: bool) -> Result<(), String> {
    for (found, what) in [
        (spec.special_token_rx.is_some() && !special_tokens, "a special token (<...>)"),
        (spec.has_stop, "stop="),
        (spec.has_max_tokens, "max_tokens="),
        (spec.has_temperature, "temperature="),
    ] {
        if found {
            return Err(format!("{what} is not supported"));
        }
    }
    // Such as an approximation.
    spec.render_warnings().into_iter().next().map_or(Ok(()), Err)
}

fn check_optional_runs(spec: &LexerSpec) -> Result<(), String> {
    let parts = spec.regex_builder.exprset();
    // Parts come before what is made of them.
    let mut runs = vec![0; parts.len() + 1];
    for index in 1..runs.len() {
        let part = ExprRef::new(index as u32);
        if !parts.is_valid(part) {
            continue;
        }
        if let [first, rest] = parts.get_args(part) {
            if parts.is_nullable(*first) {
                runs[index] = runs.get(rest.as_usize()).map_or(1, |run| run + 1);
            }
        }
        if runs[index] > MAX_OPTIONAL_RUN {
            return Err(format!("more than {MAX_OPTIONAL_RUN} parts of an expression in a row may be left out"));
        }
    }
    Ok(())
}

/// Terminals that no text matches. Also where a terminal is refused that is too large: making the parser takes the
/// same steps without a limit.
fn empty_terminals(spec: &LexerSpec, limits: &ParserLimits) -> Result<HashSet<LexemeIdx>, String> {
    let mut regexes = spec.to_regex_vec(&mut limits.clone()).map_err(|e| clean(&e.to_string()))?;
    let all = (0..spec.lexemes.len()).map(LexemeIdx::new);
    let is_empty = |idx: &LexemeIdx| {
        let mut alone = spec.alloc_lexeme_set();
        alone.add(*idx);
        regexes.initial_state(&alone).is_dead()
    };
    let empty = all.filter(is_empty).collect();
    regexes.set_fuel(FIRST_BYTE_FUEL);
    let start = regexes.initial_state(&spec.all_lexemes());
    for byte in 0..=255 {
        regexes.transition(start, byte);
        if regexes.has_error() {
            return Err("an expression in it is too large".into());
        }
    }
    Ok(empty)
}

/// A rule is of use when some text matches it. One that is of no use would be a way that never ends.
fn check_rules_end(grammar: &CGrammar, empty: &HashSet<LexemeIdx>) -> Result<(), String> {
    let mut reached = vec![grammar.start()];
    let mut seen: HashSet<usize> = reached.iter().map(CSymIdx::as_index).collect();
    let mut users: HashMap<usize, Vec<usize>> = HashMap::new();
    // Per rule of a symbol: the symbol, and how many of the symbols on its right are not known to be of use.
    let mut rules: Vec<(usize, usize)> = Vec::new();
    let mut useful = Vec::new();
    let mut next = 0;
    while next < reached.len() {
        let symbol = grammar.sym_data(reached[next]);
        next += 1;
        let may_be_empty = symbol.is_nullable || !symbol.cond_nullable.is_empty();
        if symbol.props.temperature != 0.0 {
            return Err("temperature= is not supported".into());
        }
        if may_be_empty || symbol.lexeme.is_some_and(|lexeme| !empty.contains(&lexeme)) {
            useful.push(symbol.idx.as_index());
        }
        for rule in &symbol.rules {
            let (right, ..) = grammar.rule_rhs(*rule);
            for part in right {
                users.entry(part.as_index()).or_default().push(rules.len());
                if seen.insert(part.as_index()) {
                    reached.push(*part);
                }
            }
            rules.push((symbol.idx.as_index(), right.len()));
        }
    }
    let mut known: HashSet<usize> = useful.iter().copied().collect();
    while let Some(symbol) = useful.pop() {
        for rule in users.get(&symbol).into_iter().flatten() {
            let (left, missing) = &mut rules[*rule];
            *missing -= 1;
            if *missing == 0 && known.insert(*left) {
                useful.push(*left);
            }
        }
    }
    match reached.iter().find(|symbol| !known.contains(&symbol.as_index())).map(|symbol| grammar.sym_name(*symbol)) {
        None => Ok(()),
        Some(_) if !known.contains(&grammar.start().as_index()) => Err(NO_ANSWER.into()),
        // Rules of a JSON schema have numbers.
        Some(name) if name.contains('#') => Err("no text can ever match a part of it".into()),
        Some(name) => Err(format!("no text can ever match its part '{name}'")),
    }
}

type Lowered = (Grammar, LexerSpec);

/// To rules and terminals.
fn lower(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Lowered, String> {
    let init = GrammarInit::Serialized(grammar);
    init.to_internal(Some(factory.tok_env().clone()), parser_limits()).map_err(|e| clean(&e.to_string()))
}

fn finish(factory: &ParserFactory, (grammar, spec): Lowered, special_tokens: bool) -> Result<TokenParser, String> {
    let limits = parser_limits();
    check_spec(&spec, special_tokens)?;
    check_optional_runs(&spec)?;
    let empty = empty_terminals(&spec, &limits)?;
    let init = GrammarInit::Internal(grammar, spec);
    let parser = factory.create_parser_from_init_ext(init, Logger::new(0, 0), InferenceCapabilities::default(), limits);
    let mut parser = parser.map_err(|e| clean(&e.to_string()))?;
    check_rules_end(parser.parser.grammar(), &empty)?;
    parser.start_without_prompt();
    Ok(parser)
}

/// Errors name the place in the schema.
fn parse_schema(factory: &ParserFactory, source: &str) -> Result<TokenParser, String> {
    let whole = Schema::new(source)?;
    let start = Instant::now();
    let lowered = |schema: &Value| {
        let grammar = TopLevelGrammar::from_json_schema(schema::with_spaces(schema));
        ffi::caught(|| lower(factory, grammar)).map_err(|e| clean(&e))
    };
    let finished = |lowered| ffi::caught(|| finish(factory, lowered, false)).map_err(|e| clean(&e));
    let with_place = |reason: String, again: &dyn Fn(&Value) -> Option<String>| {
        let is_quick = start.elapsed() < MAX_TIME_TO_REPEAT;
        let (at, own) = if is_quick { place::find(&whole, reason.clone(), again) } else { place::whole(&reason) };
        // The part's own reason says more, unless it speaks of the answer, of which it is a part only.
        format!("at {at}: {}", if own == NO_ANSWER { reason } else { own })
    };
    let rules = lowered(&whole.root).map_err(|reason| with_place(reason, &|part| lowered(part).err()))?;
    finished(rules).map_err(|reason| with_place(reason, &|part| lowered(part).and_then(finished).err()))
}

fn parse_source(factory: &ParserFactory, kind: Kind, source: &str) -> Result<TokenParser, String> {
    let parse = |grammar: TopLevelGrammar| finish(factory, lower(factory, grammar)?, kind == Kind::Answer);
    match kind {
        Kind::JsonSchema => parse_schema(factory, source),
        Kind::Regex => {
            super::check_regex(source, false)?;
            // It becomes /.../ in a Lark grammar, where // starts a comment.
            parse(TopLevelGrammar::from_regex(if source.is_empty() { "(?:)" } else { source }))
        }
        Kind::Lark | Kind::Answer => {
            lark::check(source)?;
            let mut parser = parse(TopLevelGrammar::from_lark(source.to_string()))?;
            parser.enable_cancellation();
            Ok(parser)
        }
    }
}

pub fn compile(factory: &ParserFactory, kind: Kind, source: &str) -> Result<TokenParser, String> {
    let limit = kind.max_bytes();
    if source.len() > limit {
        return Err(format!("it has {} bytes, the limit is {limit}", source.len()));
    }
    on_large_stack(|| {
        limits::begin_memory(usize::MAX);
        let parser = parse_source(factory, kind, source)?;
        match limits::live_bytes() {
            bytes if bytes > MAX_LIVE_BYTES => Err(format!("it takes {bytes} bytes, the limit is {MAX_LIVE_BYTES}")),
            _ => Ok(parser),
        }
    })
}
