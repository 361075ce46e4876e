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
        ("{% include 'x' %}".into(), "another template"),
        (long("-"), "deep"),
        (long("not "), "deep"),
        (long("a.b + "), "deep"),
        (long("("), "recursion"),
    ] {
        let error = render(&template).expect_err(&template);
        assert!(error.contains(reason), "{} gave {error}", &template[..template.len().min(80)]);
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
