//! Rebuilds a template's syntax tree with a check behind every operation that makes or compares values, and with
//! Python's meaning for the operators that differ (`~`, `*`, `%`, `<`). Filters are used because a template can neither
//! redefine nor shadow them. Names, order of evaluation and positions stay as they are.

use minijinja::machinery::ast::*;
use minijinja::machinery::Span;
use minijinja::Value;

/// Weighs the value that it is given.
pub const WEIGH: &str = "situ.weigh";
/// Checks time and memory only, for operations whose results are small.
pub const TICK: &str = "situ.tick";
/// As TICK, for what a for loop takes.
pub const ITERATE: &str = "situ.iterate";
pub const SLICE: &str = "situ.slice";
pub const CONCAT: &str = "situ.concat";
pub const MULTIPLY: &str = "situ.multiply";
pub const REMAINDER: &str = "situ.remainder";
pub const LESS: &str = "situ.less";
pub const LESS_EQUAL: &str = "situ.less_equal";
pub const GREATER: &str = "situ.greater";
pub const GREATER_EQUAL: &str = "situ.greater_equal";

/// The parser is iterative over long chains (`a + a + a ...`), everything after it is recursive.
const MAX_DEPTH: usize = 500;

type Rebuilt<T> = Result<T, String>;

pub fn template<'a>(root: &Stmt<'a>) -> Rebuilt<Stmt<'a>> {
    Rewriter { depth: 0 }.stmt(root)
}

struct Rewriter {
    depth: usize,
}

fn filter<'a>(name: &'static str, span: Span, expr: Expr<'a>, args: Vec<CallArg<'a>>) -> Expr<'a> {
    Expr::Filter(Spanned::new(Filter { name, expr: Some(expr), args }, span))
}

fn weigh(expr: Expr<'_>) -> Expr<'_> {
    filter(WEIGH, expr.span(), expr, vec![])
}

fn tick(expr: Expr<'_>) -> Expr<'_> {
    filter(TICK, expr.span(), expr, vec![])
}

impl Rewriter {
    fn deeper<T>(&mut self, span: Span, work: impl FnOnce(&mut Self) -> Rebuilt<T>) -> Rebuilt<T> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("the template nests more than {MAX_DEPTH} deep (line {})", span.start_line));
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    fn stmts<'a>(&mut self, body: &[Stmt<'a>]) -> Rebuilt<Vec<Stmt<'a>>> {
        body.iter().map(|s| self.stmt(s)).collect()
    }

    fn stmt<'a>(&mut self, stmt: &Stmt<'a>) -> Rebuilt<Stmt<'a>> {
        let span = match stmt {
            Stmt::ForLoop(s) => s.span(),
            Stmt::IfCond(s) => s.span(),
            _ => Span::default(),
        };
        self.deeper(span, |this| this.stmt_inner(stmt))
    }

    fn stmt_inner<'a>(&mut self, stmt: &Stmt<'a>) -> Rebuilt<Stmt<'a>> {
        Ok(match stmt {
            Stmt::Template(s) => {
                Stmt::Template(Spanned::new(Template { children: self.stmts(&s.children)? }, s.span()))
            }
            Stmt::EmitExpr(s) => {
                // A call stays outermost: `loop(...)` is recognised by that shape. The formatter checks what is emitted.
                let expr = match &s.expr {
                    Expr::Call(c) => Expr::Call(self.call(c)?),
                    other => self.expr(other)?,
                };
                Stmt::EmitExpr(Spanned::new(EmitExpr { expr }, s.span()))
            }
            Stmt::EmitRaw(s) => {
                // As a constant expression it passes the formatter, which counts what a capture takes.
                let expr = Expr::Const(Spanned::new(Const { value: Value::from(s.raw) }, s.span()));
                Stmt::EmitExpr(Spanned::new(EmitExpr { expr }, s.span()))
            }
            Stmt::ForLoop(s) => {
                let filter_expr = s.filter_expr.as_ref().map(|e| self.expr(e)).transpose()?;
                let (target, iter) = (self.target(&s.target)?, self.expr(&s.iter)?);
                let iter = filter(ITERATE, s.span(), iter, vec![]);
                let (body, else_body) = (self.stmts(&s.body)?, self.stmts(&s.else_body)?);
                let node = ForLoop { target, iter, filter_expr, recursive: s.recursive, body, else_body };
                Stmt::ForLoop(Spanned::new(node, s.span()))
            }
            Stmt::IfCond(s) => {
                let expr = self.expr(&s.expr)?;
                let (true_body, false_body) = (self.stmts(&s.true_body)?, self.stmts(&s.false_body)?);
                Stmt::IfCond(Spanned::new(IfCond { expr, true_body, false_body }, s.span()))
            }
            Stmt::WithBlock(s) => {
                let pairs = s.assignments.iter().map(|(t, e)| Ok((self.target(t)?, self.expr(e)?)));
                let assignments = pairs.collect::<Rebuilt<Vec<_>>>()?;
                let body = self.stmts(&s.body)?;
                Stmt::WithBlock(Spanned::new(WithBlock { assignments, body }, s.span()))
            }
            Stmt::Set(s) => {
                let mut expr = self.expr(&s.expr)?;
                if matches!(s.target, Expr::GetAttr(_)) {
                    // [value] is weighed as well, which refuses a namespace stored in a namespace.
                    let span = s.span();
                    let list = Expr::List(Spanned::new(List { items: vec![expr] }, span));
                    let index = Expr::Const(Spanned::new(Const { value: Value::from(0) }, span));
                    expr = Expr::GetItem(Spanned::new(GetItem { expr: weigh(list), subscript_expr: index }, span));
                }
                Stmt::Set(Spanned::new(Set { target: self.target(&s.target)?, expr }, s.span()))
            }
            Stmt::SetBlock(s) => {
                let filter = s.filter.as_ref().map(|e| self.expr(e)).transpose()?;
                let (target, body) = (self.target(&s.target)?, self.stmts(&s.body)?);
                Stmt::SetBlock(Spanned::new(SetBlock { target, filter, body }, s.span()))
            }
            Stmt::AutoEscape(s) => {
                let (enabled, body) = (self.expr(&s.enabled)?, self.stmts(&s.body)?);
                Stmt::AutoEscape(Spanned::new(AutoEscape { enabled, body }, s.span()))
            }
            Stmt::FilterBlock(s) => {
                let (filter, body) = (self.expr(&s.filter)?, self.stmts(&s.body)?);
                Stmt::FilterBlock(Spanned::new(FilterBlock { filter, body }, s.span()))
            }
            Stmt::Macro(s) => Stmt::Macro(self.macro_decl(s)?),
            Stmt::CallBlock(s) => {
                let (call, macro_decl) = (self.call(&s.call)?, self.macro_decl(&s.macro_decl)?);
                Stmt::CallBlock(Spanned::new(CallBlock { call, macro_decl }, s.span()))
            }
            Stmt::Block(s) => {
                let node = Block { name: s.name, required: s.required, body: self.stmts(&s.body)? };
                Stmt::Block(Spanned::new(node, s.span()))
            }
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {
                return Err("a chat template cannot load another template".into());
            }
            Stmt::Continue(s) => Stmt::Continue(Spanned::new(Continue, s.span())),
            Stmt::Break(s) => Stmt::Break(Spanned::new(Break, s.span())),
            Stmt::Do(s) => Stmt::Do(Spanned::new(Do { call: self.call(&s.call)? }, s.span())),
        })
    }

    fn macro_decl<'a>(&mut self, m: &Spanned<Macro<'a>>) -> Rebuilt<Spanned<Macro<'a>>> {
        let args = m.args.iter().map(|a| self.target(a)).collect::<Rebuilt<_>>()?;
        let (defaults, body) = (self.exprs(&m.defaults)?, self.stmts(&m.body)?);
        Ok(Spanned::new(Macro { name: m.name, args, defaults, body }, m.span()))
    }

    fn exprs<'a>(&mut self, items: &[Expr<'a>]) -> Rebuilt<Vec<Expr<'a>>> {
        items.iter().map(|e| self.expr(e)).collect()
    }

    fn optional<'a>(&mut self, expr: &Option<Expr<'a>>) -> Rebuilt<Option<Expr<'a>>> {
        expr.as_ref().map(|e| self.expr(e)).transpose()
    }

    fn call<'a>(&mut self, c: &Spanned<Call<'a>>) -> Rebuilt<Spanned<Call<'a>>> {
        let expr = self.target(&c.expr)?;
        Ok(Spanned::new(Call { expr, args: self.args(&c.args)? }, c.span()))
    }

    fn args<'a>(&mut self, args: &[CallArg<'a>]) -> Rebuilt<Vec<CallArg<'a>>> {
        let rebuilt = args.iter().map(|arg| {
            Ok(match arg {
                CallArg::Pos(e) => CallArg::Pos(self.expr(e)?),
                CallArg::Kwarg(name, e) => CallArg::Kwarg(name, self.expr(e)?),
                CallArg::PosSplat(e) => CallArg::PosSplat(self.expr(e)?),
                CallArg::KwargSplat(e) => CallArg::KwargSplat(self.expr(e)?),
            })
        });
        rebuilt.collect()
    }

    /// Assignment targets and callees keep their shape: a name, a list of targets, or an attribute.
    fn target<'a>(&mut self, expr: &Expr<'a>) -> Rebuilt<Expr<'a>> {
        Ok(match expr {
            Expr::Var(v) => Expr::Var(Spanned::new(Var { id: v.id }, v.span())),
            Expr::GetAttr(g) => {
                Expr::GetAttr(Spanned::new(GetAttr { expr: self.expr(&g.expr)?, name: g.name }, g.span()))
            }
            Expr::List(l) => {
                let items = l.items.iter().map(|e| self.target(e)).collect::<Rebuilt<_>>()?;
                Expr::List(Spanned::new(List { items }, l.span()))
            }
            other => self.expr(other)?,
        })
    }

    fn expr<'a>(&mut self, expr: &Expr<'a>) -> Rebuilt<Expr<'a>> {
        self.deeper(expr.span(), |this| this.expr_inner(expr))
    }

    fn expr_inner<'a>(&mut self, expr: &Expr<'a>) -> Rebuilt<Expr<'a>> {
        Ok(match expr {
            Expr::Var(_) | Expr::GetAttr(_) => self.target(expr)?,
            Expr::Const(c) => Expr::Const(Spanned::new(Const { value: c.value.clone() }, c.span())),
            Expr::Slice(s) => {
                let none = || Expr::Const(Spanned::new(Const { value: Value::from(()) }, s.span()));
                let bounds = [&s.start, &s.stop, &s.step].into_iter();
                let args = bounds.map(|b| Ok(CallArg::Pos(self.optional(b)?.unwrap_or_else(none))));
                let args = args.collect::<Rebuilt<_>>()?;
                weigh(filter(SLICE, s.span(), self.expr(&s.expr)?, args))
            }
            Expr::UnaryOp(u) => {
                let op = match u.op {
                    UnaryOpKind::Not => UnaryOpKind::Not,
                    UnaryOpKind::Neg => UnaryOpKind::Neg,
                };
                Expr::UnaryOp(Spanned::new(UnaryOp { op, expr: self.expr(&u.expr)? }, u.span()))
            }
            Expr::BinOp(b) => self.bin_op(b)?,
            Expr::Compare(c) => {
                let ops = c.ops.iter().map(|o| Ok(CompareOp { op: o.op, expr: self.expr(&o.expr)? }));
                let ops = ops.collect::<Rebuilt<_>>()?;
                tick(Expr::Compare(Spanned::new(Compare { expr: self.expr(&c.expr)?, ops }, c.span())))
            }
            Expr::IfExpr(i) => {
                let (test_expr, true_expr) = (self.expr(&i.test_expr)?, self.expr(&i.true_expr)?);
                let false_expr = self.optional(&i.false_expr)?;
                Expr::IfExpr(Spanned::new(IfExpr { test_expr, true_expr, false_expr }, i.span()))
            }
            Expr::Filter(f) => {
                let (expr, args) = (self.optional(&f.expr)?, self.args(&f.args)?);
                weigh(Expr::Filter(Spanned::new(Filter { name: f.name, expr, args }, f.span())))
            }
            Expr::Test(t) => {
                let (expr, args) = (self.expr(&t.expr)?, self.args(&t.args)?);
                tick(Expr::Test(Spanned::new(Test { name: t.name, expr, args }, t.span())))
            }
            Expr::GetItem(g) => {
                let (expr, subscript_expr) = (self.expr(&g.expr)?, self.expr(&g.subscript_expr)?);
                tick(Expr::GetItem(Spanned::new(GetItem { expr, subscript_expr }, g.span())))
            }
            Expr::Call(c) => weigh(Expr::Call(self.call(c)?)),
            Expr::List(l) => weigh(Expr::List(Spanned::new(List { items: self.exprs(&l.items)? }, l.span()))),
            Expr::Tuple(t) => weigh(Expr::Tuple(Spanned::new(Tuple { items: self.exprs(&t.items)? }, t.span()))),
            Expr::Map(m) => {
                let (keys, values) = (self.exprs(&m.keys)?, self.exprs(&m.values)?);
                weigh(Expr::Map(Spanned::new(Map { keys, values }, m.span())))
            }
        })
    }

    fn bin_op<'a>(&mut self, b: &Spanned<BinOp<'a>>) -> Rebuilt<Expr<'a>> {
        let (left, right, span) = (self.expr(&b.left)?, self.expr(&b.right)?, b.span());
        let own = match b.op {
            BinOpKind::Concat => CONCAT,
            BinOpKind::Mul => MULTIPLY,
            BinOpKind::Rem => REMAINDER,
            BinOpKind::Lt => LESS,
            BinOpKind::Lte => LESS_EQUAL,
            BinOpKind::Gt => GREATER,
            BinOpKind::Gte => GREATER_EQUAL,
            op => {
                let node = Expr::BinOp(Spanned::new(BinOp { op, left, right }, span));
                return Ok(match op {
                    BinOpKind::ScAnd | BinOpKind::ScOr => node,
                    BinOpKind::Add => weigh(node),
                    _ => tick(node),
                });
            }
        };
        Ok(filter(own, span, left, vec![CallArg::Pos(right)]))
    }
}
