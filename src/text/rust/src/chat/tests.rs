fn render_bounded(template: &str, messages: &str, variables: &str) -> Result<String, String> {
    unsafe { super::render_bounded(template, messages, variables, std::ptr::null()) }
}

const MESSAGES: &str = r#"[{"role": "user", "content": "Hi 😀"}]"#;

fn render(template: &str) -> Result<String, String> {
    render_bounded(template, MESSAGES, r#"{"bos_token": "<s>", "n": null, "f": 1.0, "d": {"b": [true, "it's"]}}"#)
}

#[test]
fn values_read_as_in_python() {
    for (template, text) in [
        ("{{ bos_token }}{{ n }} {{ f }} {{ d }} {{ missing }}", r#"<s>None 1.0 {'b': [True, "it's"]} "#),
        ("{{ d|tojson }}", r#"{"b": [true, "it's"]}"#),
        ("{{ d|tojson(indent=1) }}", "{\n \"b\": [\n  true,\n  \"it's\"\n ]\n}"),
        ("{{ messages[::-1][0].content[-1] }}{{ [][::-1] }}", "😀[]"),
        ("{{ '%s-%02d' % ('a', 3) }} {{ -7 % 3 }} {{ 'ab' * 2 }} {{ 1 ~ none }}", "a-03 2 abab 1None"),
        ("{{ ' x '.strip() }}{{ 'abc'.removeprefix('a') }}{{ 'a b'.split()[1] }}", "xbcb"),
        ("{% for m in messages %}\n  {% generation %}\nA\n  {%- endgeneration %}\n{% endfor %}\nB\n", "AB"),
        ("{{ 'x' is sequence }} {{ none is iterable }} {{ '3'|int + 1 }}", "True False 4"),
    ] {
        assert_eq!(render(template), Ok(text.to_string()), "{template}");
    }
}

/// What Jinja2 3.1.6 gives, set up as transformers does.
#[test]
fn filters_and_methods_of_jinja2() {
    for (template, text) in [
        ("{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}", "007-007"),
        ("{{ 'a'.ljust(3)~'.' }}{{ 'a'.rjust(3) }}{{ 'a'.center(5) }}{{ 'ab'.center(7,'*') }}|", "a  .  a  a  ***ab**|"),
        ("{{ 'a,b'.split(sep=',') }}{{ ' a b  c '.split(maxsplit=1) }}", "['a', 'b']['a', 'b  c ']"),
        ("{{ ' a b  c '.rsplit(none, 1) }}{{ 'a-b-c'.rsplit('-', 1) }}", "[' a b', 'c']['a-b', 'c']"),
        ("{{ 'abc'.startswith('b',1) }}{{ 'abc'.endswith(('x','c')) }}{{ 'abc'.startswith('a',0,0) }}", "TrueTrueFalse"),
        ("{{ 'abc'.find('c',1) }}{{ 'héhé'.rfind('h') }}{{ 'abc'.find('a',-2) }}{{ 'aXbX'.count('X',2) }}", "22-11"),
        ("{{ [1,2,3]|sum }}{{ [{'a':1},{'a':2}]|sum(attribute='a') }}{{ [[1],[2]]|sum(start=[]) }}", "63[1, 2]"),
        ("{{ [1,2,3]|slice(2)|list }}{{ [1,2,3]|slice(2,0)|list }}", "[[1, 2], [3]][[1, 2], [3, 0]]"),
        ("{{ 'a b'|wordcount }}{{ \"don't é_1\"|wordcount }}", "23"),
        ("{{ 'abcdefghijklmnop'|truncate(5, true, '') }}{{ 'foo bar baz qux'|truncate(9) }}", "abcdefoo..."),
        ("{{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}", "foo bar baz qux foo bar..."),
        ("{{ [1,2,3].index(2) }}{{ [1,2].copy() }}{{ {'a':1}.copy() }}{{ [1,1.0,2].count(1) }}", "1[1, 2]{'a': 1}2"),
        ("{{ '10'|int(base=2) }}{{ '0xff'|int(0,16) }}{{ '42.9'|int }}{{ 'x'|int(7) }}{{ ' 1_0 '|int }}", "225542710"),
        ("{{ '%(x)s'|format(x=1) }}{{ '%r' % 'a' }}{{ '%5.1f|%-4d|%+d|%#x|%%' % (3.14159, 5, 2, 255) }}", "1'a'  3.1|5   |+2|0xff|%"),
        ("{{ 'a&b c'|urlencode }}{{ {'a b':'c/d'}|urlencode }}", "a%26b%20ca+b=c%2Fd"),
        ("{{ nope|first }}{{ nope|last }}{{ nope|join }}{{ nope|list }}{{ nope|sum }}{{ nope|upper }}", "[]0"),
        ("{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "abab"),
        ("{% set j = joiner('|') %}{% for x in [1,2,3] %}{{ j() }}{{ x }}{% endfor %}", "1|2|3"),
        ("{{ '12'.isdecimal() }}{{ '²'.isdecimal() }}{{ '²'.isdigit() }}{{ '½'.isnumeric() }}{{ '½'.isdigit() }}", "TrueFalseTrueTrueFalse"),
        ("{{ {'a':1}|tojson(true,2) }}{{ {'b':'é','a':1}|tojson(ensure_ascii=true, sort_keys=true) }}", "{\n  \"a\": 1\n}{\"a\": 1, \"b\": \"\\u00e9\"}"),
        ("{{ 'ﬁx ǆ ß'.title() }} {{ 'ΑΣ'.lower() }} {{ 'it\\'s a-b'|title }} {{ 'it\\'s'.title() }}", "Fix ǅ Ss ας It's A-B It'S"),
        ("{{ 'a\\r\\nb\\x0cc'.splitlines() }}{{ 'a\\nb'.splitlines(true) }}", "['a', 'b', 'c']['a\\n', 'b']"),
        ("{{ '{:>5}|{:,}|{0!r}|{:.1%}'.replace('{0!r}','{!r}').format('a', 1234567, 'b', 0.256) }}", "    a|1,234,567|'b'|25.6%"),
        ("{{ '{a[0]}{b.c}{d:{w}}'.format(a=[1], b={'c':2}, d='x', w=3) }}|", "12x  |"),
        ("{{ {'b':1,'A':2}|dictsort }}{{ ['b','A','a']|sort }}{{ ['a','A','b']|unique|list }}", "[('A', 2), ('b', 1)]['A', 'a', 'b']['a', 'b']"),
        ("{% for g, l in [{'k':'x'},{'k':'X'},{'k':'a'}]|groupby('k') %}{{ g }}{{ l|length }}{% endfor %}", "a1x2"),
        ("{{ [3,1,2]|batch(2,0)|list }}{{ [1,2]|reverse|list }}{{ ('a','b')|last }}", "[[3, 1], [2, 0]][2, 1]b"),
        ("{{ 2.5|round }}{{ 2.675|round(2) }}{{ 1234|round(-2) }}{{ 2.1|round(0,'ceil')|int }}", "2.02.6712003"),
        ("{{ 123456|filesizeformat }} {{ 1048576|filesizeformat(true) }}", "123.5 kB 1.0 MiB"),
        ("{{ 'The quick brown-fox jumps'|wordwrap(10) }}", "The quick\nbrown-fox\njumps"),
        ("{{ 'a\\n\\nb'|indent(2) }}|{{ 'a\\nb'|indent('>', true) }}", "a\n\n  b|>a\n>b"),
        ("{{ {'b':[1,2],'a':'x'}|pprint }}{{ '<b>x</b> &amp;  y'|striptags }}", "{'a': 'x', 'b': [1, 2]}x & y"),
        ("{{ '<a>'|e }}{{ '<a>'|e|e }}{{ {'a':1,'b':none}|xmlattr }}", "&lt;a&gt;&lt;a&gt; a=\"1\""),
        ("{{ ['a\\x00é\\u200b'] }}{{ range(3) }}{{ {'a':1}.items() }}", "['a\\x00é\\u200b']range(0, 3)dict_items([('a', 1)])"),
        // Iterators are true and end, as Python's.
        ("{% set g = [1,2]|select('gt',5) %}{{ 'y' if g else 'n' }}{{ g|list }}", "y[]"),
        ("{% set g = [1,2]|map('string') %}{{ g|first }}{% for x in g %}{{ x }}{{ loop.last }}{% endfor %}{{ g|list }}", "12True[]"),
        ("{{ [{'a':{'b':1}},{}]|map(attribute='a.b', default=0)|list }}", "[1, 0]"),
        ("{{ [{'a':1},{'a':2},{}]|selectattr('a','defined')|rejectattr('a','equalto',1)|map(attribute='a')|first }}", "2"),
    ] {
        assert_eq!(render(template), Ok(text.to_string()), "{template}");
    }
}

#[test]
fn what_jinja2_refuses() {
    for (template, reason) in [
        ("{{ 1 < 'a' }}", "no order"),
        ("{{ [1].append(2) }}", "cannot change"),
        ("{{ 'a'.zfill() }}", "'width' is missing"),
        ("{{ 'a'.lower(1) }}", "at most 0"),
        ("{{ 'a'.split(seperator='b') }}", "no argument 'seperator'"),
        ("{{ 'a'.split('') }}", "empty separator"),
        ("{{ '%d' % 'a' }}", "wants a number"),
        ("{{ '%s %s' % 'a' }}", "not enough"),
        ("{{ 'a' % 1 }}", "not all"),
        ("{{ '{}{1}'.format(1, 2) }}", "numbers all"),
        ("{{ '{:d}'.format('a') }}", "not for a value of type str"),
        ("{{ [1]|map('nope')|list }}", "nope"),
        ("{{ ['a']|sum }}", "unsupported operands"),
        ("{{ none|first }}", "none is not iterable"),
        ("{{ [[1]]|unique|list }}", "cannot be in a set"),
        ("{{ 'a'|urlize }}", "urlize"),
    ] {
        let error = render(template).expect_err(template);
        assert!(error.contains(reason), "{template} gave {error}");
    }
}

/// Each would hang, overflow the stack or take terabytes without the limits.
#[test]
fn hostile_templates_are_refused() {
    let long = |part: &str| format!("{{{{ {}1 }}}}", part.repeat(200_000 / part.len()));
    for (template, reason) in [
        ("{% for i in range(10**12) %}{% endfor %}".to_string(), "range"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".into(), "fuel"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into(), "recursion"),
        (
            "{% set n = namespace(x='aa') %}{% for i in range(64) %}{% set n.x = n.x ~ n.x %}{% endfor %}".into(),
            "bytes",
        ),
        (
            "{% set n = namespace(x=[1]) %}{% for i in range(64) %}{% set n.x = [n.x, n.x] %}{% endfor %}".into(),
            "bytes",
        ),
        ("{% set n = namespace(x=1) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}".into(), "deep"),
        ("{% set n = namespace() %}{% set n.a = n %}{{ n }}".into(), "namespace inside"),
        ("{% set n = namespace() %}{% set m = [n] %}".into(), "namespace inside"),
        ("{% set a = 'a' * 1000000 %}{{ a.replace('a', a) }}".into(), "bytes"),
        ("{% set a = 'a' * 1000000 %}{{ a|join(a) }}".into(), "bytes"),
        ("{{ (1, 2) * 10**12 }}".into(), "bytes"),
        ("{{ '%999999999d' % 1 }}".into(), "width"),
        ("{{ '{:{w}}'.format(1, w=999999999) }}".into(), "width"),
        ("{{ 'a'.center(999999999) }}".into(), "count"),
        ("{{ '{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}'.format('a' * 1000000) }}".into(), "bytes"),
        ("{{ ('a' * 1000000).translate({97: 'a' * 100}) }}".into(), "bytes"),
        (
            "{% set n = namespace(x=1) %}{% for i in range(9999) %}{% set n.x = cycler(n.x) %}{% endfor %}".into(),
            "deep",
        ),
        (
            "{% set n = namespace(x=[1]) %}{% for i in range(64) %}{% set n.x = [n.x, n.x]|select %}{% endfor %}"
                .into(),
            "bytes",
        ),
        ("{% set n = namespace() %}{% set c = cycler(n) %}".into(), "namespace inside"),
        ("{% include 'x' %}".into(), "another template"),
        (long("-"), "deep"),
        (long("not "), "deep"),
        (long("a.b + "), "deep"),
        (long("("), "recursion"),
    ] {
        let error = render(&template).expect_err(&template);
        // On a machine that is busy the time may end before the steps do.
        assert!(error.contains(reason) || error.contains("seconds"), "{} gave {error}", &template[..template.len().min(80)]);
    }
}

#[test]
fn bad_input_is_an_error() {
    assert!(render_bounded("{{ 1 }}", "[", "{}").unwrap_err().contains("messages"));
    assert!(render_bounded("{{ 1 }}", "[]", "[1]").unwrap_err().contains("variables"));
    assert!(render_bounded("{{ 1 }}", &"[".repeat(100_000), "{}").unwrap_err().contains("recursion"));
    assert!(render("{{ raise_exception('no ' ~ bos_token) }}").unwrap_err().contains("no <s>"));
    assert!(render("{{ x").unwrap_err().contains("line 1"));
    for unfinished in ["{%} generation", "{%}{% generation", "{%} generation %}"] {
        assert!(render(unfinished).unwrap_err().contains("line 1"));
    }
}
