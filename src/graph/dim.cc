#include "graph/dim.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "base/word_sum.h"

namespace situ {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Saturating arithmetic: a hostile shape overflows to the bound and is refused by the size checks.
int64_t sat_add(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_add_overflow(a, b, &r)) return r;
  return a > 0 ? kMax : kMin;
}
int64_t sat_mul(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_mul_overflow(a, b, &r)) return r;
  return (a > 0) == (b > 0) ? kMax : kMin;
}
int64_t div_trunc(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return a == kMin ? kMax : -a;
  return a / b;
}
int64_t mod_floor(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

enum class AtomKind { kSymbol, kDiv, kMod, kMin, kMax, kSelect, kLess, kEqual };

}  // namespace

struct Atom {
  AtomKind kind;
  int symbol = 0;
  std::array<Dim, 3> args;
  std::string key;  // canonical text; equal keys mean equal atoms
};
using AtomPtr = std::shared_ptr<const Atom>;

// A product of atoms (with repetition), ordered by key.
struct Monomial {
  std::vector<AtomPtr> atoms;
  std::string key;
};

struct Dim::Poly {
  // Non-zero coefficients by monomial key; "" is the constant term. Never a lone constant.
  std::map<std::string, std::pair<Monomial, int64_t>> terms;
};

struct DimOps {
  using Terms = std::map<std::string, std::pair<Monomial, int64_t>>;
  static Terms terms(const Dim& d) {
    if (d.poly_) return d.poly_->terms;
    Terms t;
    if (d.value_ != 0) t.emplace("", std::make_pair(Monomial{}, d.value_));
    return t;
  }
  // Keys hold whatever a term is made of, so that their length bounds both what a Dim takes and how long it computes.
  static void check_size(const Terms& t) {
    size_t size = 0;
    for (const auto& [key, term] : t)
      if ((size += key.size() + 1) > kLongestDim) throw DimTooLong();
  }
  static Dim from(Terms t) {
    check_size(t);
    for (auto it = t.begin(); it != t.end();) it = it->second.second == 0 ? t.erase(it) : std::next(it);
    if (t.empty()) return Dim(0);
    if (t.size() == 1 && t.begin()->first.empty()) return Dim(t.begin()->second.second);
    Dim d;
    auto p = std::make_shared<Dim::Poly>();
    p->terms = std::move(t);
    d.poly_ = std::move(p);
    return d;
  }
  static Monomial product(const Monomial& a, const Monomial& b) {
    Monomial m;
    m.atoms = a.atoms;
    m.atoms.insert(m.atoms.end(), b.atoms.begin(), b.atoms.end());
    std::sort(m.atoms.begin(), m.atoms.end(), [](const AtomPtr& x, const AtomPtr& y) { return x->key < y->key; });
    for (const AtomPtr& x : m.atoms) m.key += (m.key.empty() ? "" : "*") + x->key;
    return m;
  }
  static Dim from_atom(AtomPtr atom) {
    Monomial m{{atom}, atom->key};
    Terms t;
    t.emplace(m.key, std::make_pair(m, int64_t{1}));
    return from(std::move(t));
  }
  static Dim apply(AtomKind kind, const Dim& a, const Dim& b, const Dim& c = 0) {
    static const char* const kNames[] = {"", "div", "mod", "min", "max", "select", "less", "equal"};
    auto atom = std::make_shared<Atom>();
    atom->kind = kind;
    atom->args = {a, b, c};
    atom->key = std::string(kNames[static_cast<int>(kind)]) + "(" + a.str() + "," + b.str();
    if (kind == AtomKind::kSelect) atom->key += "," + c.str();
    atom->key += ")";
    if (atom->key.size() > kLongestDim) throw DimTooLong();
    return from_atom(std::move(atom));
  }
  static int64_t eval_atom(const Atom& a, const SymbolValues& s) {
    if (a.kind == AtomKind::kSymbol) return s[a.symbol];
    const int64_t x = a.args[0].eval(s), y = a.args[1].eval(s);
    switch (a.kind) {
      case AtomKind::kDiv:
        return div_trunc(x, y);
      case AtomKind::kMod:
        return mod_floor(x, y);
      case AtomKind::kMin:
        return std::min(x, y);
      case AtomKind::kMax:
        return std::max(x, y);
      case AtomKind::kLess:
        return x < y;
      case AtomKind::kEqual:
        return x == y;
      default:
        return x != 0 ? y : a.args[2].eval(s);
    }
  }
  struct Interval {
    int64_t lo, hi;
  };
  static Interval mul(Interval a, Interval b) {
    const int64_t c[] = {sat_mul(a.lo, b.lo), sat_mul(a.lo, b.hi), sat_mul(a.hi, b.lo), sat_mul(a.hi, b.hi)};
    return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
  }
  static Interval bounds(const Atom& a) {
    if (a.kind == AtomKind::kSymbol) {
      const SymbolInfo& symbol = current_symbols().info(a.symbol);
      return {symbol.least, symbol.most};
    }
    const Interval x = bounds(a.args[0]), y = bounds(a.args[1]);
    switch (a.kind) {
      case AtomKind::kDiv:
        if (y.lo == y.hi && y.lo > 0) return {x.lo == kMin ? kMin : x.lo / y.lo, x.hi == kMax ? kMax : x.hi / y.lo};
        return x.lo >= 0 && y.lo > 0 ? Interval{0, x.hi} : Interval{kMin, kMax};
      case AtomKind::kMod:
        return y.lo == y.hi && y.lo > 0 ? Interval{0, y.lo - 1} : Interval{kMin, kMax};
      case AtomKind::kMin:
        return {std::min(x.lo, y.lo), std::min(x.hi, y.hi)};
      case AtomKind::kMax:
        return {std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
      case AtomKind::kLess:
      case AtomKind::kEqual:
        return {0, 1};
      default: {
        const Interval z = bounds(a.args[2]);
        return {std::min(y.lo, z.lo), std::max(y.hi, z.hi)};
      }
    }
  }
  static Interval bounds(const Dim& d) {
    if (d.is_const()) return {d.value(), d.value()};
    Interval sum{0, 0};
    // c*S + c*P is c times the length of the sequence, which is bounded as a whole: what is a multiple of a relation
    // counts as one.
    const SymbolTable& table = current_symbols();
    std::map<std::string, int64_t> taken;
    const auto left = [&](const std::string& symbol) {
      const auto term = d.poly_->terms.find(symbol);
      return term == d.poly_->terms.end() ? int64_t{0} : term->second.second - taken[symbol];
    };
    const auto add = [&](Interval m) {
      sum = {sum.lo == kMin || m.lo == kMin ? kMin : sat_add(sum.lo, m.lo),
             sum.hi == kMax || m.hi == kMax ? kMax : sat_add(sum.hi, m.hi)};
    };
    for (const SymbolRelation& r : table.relations) {
      int64_t times = left(table.name(r.terms[0].first)) * r.terms[0].second;
      for (const auto& [symbol, factor] : r.terms) {
        const int64_t c = left(table.name(symbol)) * factor;
        times = c == 0 || (c > 0) != (times > 0) ? 0 : times > 0 ? std::min(times, c) : std::max(times, c);
      }
      if (times == 0) continue;
      for (const auto& [symbol, factor] : r.terms) taken[table.name(symbol)] += times * factor;
      add(mul({times, times}, {r.least, r.most}));
    }
    for (const auto& [key, term] : d.poly_->terms) {
      const auto part = taken.find(key);
      const int64_t c = term.second - (part == taken.end() ? 0 : part->second);
      if (c == 0) continue;
      Interval m{1, 1};
      for (const AtomPtr& a : term.first.atoms) m = mul(m, bounds(*a));
      add(mul(m, {c, c}));
    }
    return sum;
  }
  // T - min(4, T) is at least T - T and at least T - 4: what a minimum or maximum shares with the rest of the sum
  // counts.
  static Interval tight_bounds(const Dim& d) {
    Interval best = bounds(d);
    if (d.is_const()) return best;
    for (const auto& [key, term] : d.poly_->terms) {
      const std::vector<AtomPtr>& atoms = term.first.atoms;
      if (atoms.size() == 1 && atoms[0]->kind == AtomKind::kDiv) best = by_multiples(d, atoms[0], term.second, best);
      if (atoms.size() != 1 || (atoms[0]->kind != AtomKind::kMin && atoms[0]->kind != AtomKind::kMax)) continue;
      const bool above =
          (atoms[0]->kind == AtomKind::kMin) == (term.second > 0);  // its operands give a sum that is no smaller
      for (size_t i = 0; i < 2; ++i) try {
          const Interval other =
              bounds(d - from_atom(atoms[0]) * Dim(term.second) + atoms[0]->args[i] * Dim(term.second));
          if (above)
            best.hi = std::min(best.hi, other.hi);
          else
            best.lo = std::max(best.lo, other.lo);
        } catch (const DimTooLong&) {  // tells nothing more
        }
    }
    return best;
  }
  // k * div(x, k) lies in [x - k + 1, x], where x is not below 0: of d, in which `count` of these divs are a term.
  static Interval by_multiples(const Dim& d, const AtomPtr& div, int64_t count, Interval best) {
    const Dim &x = div->args[0], &k = div->args[1];
    if (!k.is_const() || k.value() <= 0 || count % k.value() != 0 || x.lower_bound() < 0) return best;
    const Dim rest = d - from_atom(div) * Dim(count), times = count / k.value();
    const Dim least = rest + (x - k + Dim(1)) * times, most = rest + x * times;
    try {
      best.lo = std::max(best.lo, bounds(count > 0 ? least : most).lo);
      best.hi = std::min(best.hi, bounds(count > 0 ? most : least).hi);
    } catch (const DimTooLong&) {  // tells nothing more
    }
    return best;
  }
  static bool piecewise_linear(const Dim& d, std::vector<int64_t>* numbers) {
    if (!d.poly_) {
      numbers->push_back(d.value_);
      return true;
    }
    bool linear = true;
    for (const auto& [key, term] : d.poly_->terms) {
      if (key.empty() || (term.second != 1 && term.second != -1)) numbers->push_back(term.second);
      linear = linear && term.first.atoms.size() <= 1;
      for (const AtomPtr& a : term.first.atoms) {
        linear = linear && a->kind != AtomKind::kDiv && a->kind != AtomKind::kMod;
        for (const Dim& x : a->args)
          if (a->kind != AtomKind::kSymbol) linear = piecewise_linear(x, numbers) && linear;
      }
    }
    return linear;
  }
  // Whether `f` holds for the id of any symbol that d depends on.
  template <typename F>
  static bool any_symbol(const Dim& d, const F& f) {
    if (d.is_const()) return false;
    for (const auto& [key, term] : d.poly_->terms)
      for (const AtomPtr& a : term.first.atoms)
        if (a->kind == AtomKind::kSymbol
                ? f(a->symbol)
                : std::any_of(a->args.begin(), a->args.end(), [&](const Dim& x) { return any_symbol(x, f); }))
          return true;
    return false;
  }
  static Dim substitute(const Dim& d, int id, const Dim& by) {
    if (d.is_const()) return d;
    Dim sum = 0;
    for (const auto& [key, term] : d.poly_->terms) {
      Dim m = term.second;
      for (const AtomPtr& a : term.first.atoms) m = m * substitute(a, id, by);
      sum = sum + m;
    }
    return sum;
  }
  static Dim substitute(const AtomPtr& a, int id, const Dim& by) {
    if (a->kind == AtomKind::kSymbol) return a->symbol == id ? by : from_atom(a);
    const Dim x = substitute(a->args[0], id, by), y = substitute(a->args[1], id, by);
    switch (a->kind) {
      case AtomKind::kDiv:
        return dim_div(x, y);
      case AtomKind::kMod:
        return dim_mod(x, y);
      case AtomKind::kMin:
        return dim_min(x, y);
      case AtomKind::kMax:
        return dim_max(x, y);
      case AtomKind::kLess:
        return dim_less(x, y);
      case AtomKind::kEqual:
        return dim_equal(x, y);
      default:
        return dim_select(x, y, substitute(a->args[2], id, by));
    }
  }
  // a = multiple * divisor + rest, coefficient by coefficient, a number as rest in [0, divisor).
  static std::pair<Dim, Dim> split(const Dim& a, int64_t divisor) {
    Dim multiple = 0, rest = 0;
    for (const auto& [key, term] : terms(a)) {
      Dim m = 1;
      for (const AtomPtr& x : term.first.atoms) m = m * from_atom(x);
      const int64_t left = mod_floor(term.second, divisor);
      multiple = multiple + Dim((term.second - left) / divisor) * m;
      rest = rest + Dim(left) * m;
    }
    return {multiple, rest};
  }
  // Leaves the remainder that a does: remainders by the same divisor are what they are remainders of.
  static Dim congruent(const Dim& a, int64_t divisor) {
    Dim same = 0;
    for (const auto& [key, term] : terms(a)) {
      const std::vector<AtomPtr>& atoms = term.first.atoms;
      if (atoms.empty()) {
        same = same + Dim(mod_floor(term.second, divisor));
        continue;
      }
      Dim m = term.second;
      if (atoms.size() == 1 && atoms[0]->kind == AtomKind::kMod && atoms[0]->args[1] == Dim(divisor))
        m = m * atoms[0]->args[0];
      else
        for (const AtomPtr& x : atoms) m = m * from_atom(x);
      same = same + m;
    }
    return same;
  }
  static std::optional<Dim> exact_div(const Dim& a, const Dim& b) {
    const Terms divisor = terms(b);
    if (divisor.size() != 1) {
      if (a == b) return Dim(1);
      // (S + P) * k / (S + P): try the quotient of the first terms and multiply back.
      const Terms dividend = terms(a);
      if (divisor.empty() || dividend.empty()) return std::nullopt;
      auto head = divide_term(dividend.rbegin()->second, divisor.rbegin()->second);
      if (!head) return std::nullopt;
      Dim quotient = *head;
      const Dim rest = a - quotient * b;
      if (rest == Dim(0)) return quotient;
      if (terms(rest).size() >= dividend.size()) return std::nullopt;
      auto tail = exact_div(rest, b);
      return tail ? std::optional<Dim>(quotient + *tail) : std::nullopt;
    }
    Dim quotient = 0;
    for (const auto& [key, term] : terms(a)) {
      auto q = divide_term(term, divisor.begin()->second);
      if (!q) return std::nullopt;
      quotient = quotient + *q;
    }
    return quotient;
  }
  static std::optional<Dim> divide_term(const std::pair<Monomial, int64_t>& a, const std::pair<Monomial, int64_t>& b) {
    if (b.second == 0 || a.second % b.second != 0) return std::nullopt;
    std::vector<AtomPtr> left = a.first.atoms;
    for (const AtomPtr& x : b.first.atoms) {
      auto it = std::find_if(left.begin(), left.end(), [&](const AtomPtr& y) { return y->key == x->key; });
      if (it == left.end()) return std::nullopt;
      left.erase(it);
    }
    Dim q = a.second / b.second;
    for (const AtomPtr& x : left) q = q * from_atom(x);
    return q;
  }
  static std::string str(const Dim& d, const std::vector<std::string>* names) {
    if (d.is_const()) return std::to_string(d.value());
    std::string out;
    // Symbols before the constant term: "S + 1", not "1 + S".
    auto append = [&](const Monomial& m, int64_t c) {
      std::string text;
      for (const AtomPtr& a : m.atoms) text += (text.empty() ? "" : "*") + atom_str(*a, names);
      const int64_t magnitude = c < 0 ? -c : c;
      if (text.empty())
        text = std::to_string(magnitude);
      else if (magnitude != 1)
        text = std::to_string(magnitude) + "*" + text;
      if (out.empty())
        out = (c < 0 ? "-" : "") + text;
      else
        out += (c < 0 ? " - " : " + ") + text;
    };
    for (const auto& [key, term] : d.poly_->terms)
      if (!key.empty()) append(term.first, term.second);
    for (const auto& [key, term] : d.poly_->terms)
      if (key.empty()) append(term.first, term.second);
    return out;
  }
  static std::string atom_str(const Atom& a, const std::vector<std::string>* names) {
    if (a.kind != AtomKind::kSymbol) return a.key;
    if (names && a.symbol < static_cast<int>(names->size()) && !(*names)[a.symbol].empty()) return (*names)[a.symbol];
    return current_symbols().name(a.symbol);
  }
  static AtomPtr symbol(int id) {
    auto atom = std::make_shared<Atom>();
    atom->kind = AtomKind::kSymbol;
    atom->symbol = id;
    atom->key = current_symbols().name(id);
    return atom;
  }
  static int64_t eval(const Dim::Poly& p, const SymbolValues& s) {
    int64_t sum = 0;
    for (const auto& [key, term] : p.terms) {
      int64_t m = term.second;
      for (const AtomPtr& a : term.first.atoms) m = sat_mul(m, eval_atom(*a, s));
      sum = sat_add(sum, m);
    }
    return sum;
  }
};

Dim Dim::symbol(int id) { return DimOps::from_atom(DimOps::symbol(id)); }
int64_t Dim::eval(const SymbolValues& s) const { return poly_ ? DimOps::eval(*poly_, s) : value_; }
int64_t Dim::lower_bound() const { return DimOps::tight_bounds(*this).lo; }
int64_t Dim::upper_bound() const { return DimOps::tight_bounds(*this).hi; }
bool Dim::linear() const {
  if (!poly_) return true;
  return std::all_of(poly_->terms.begin(), poly_->terms.end(), [](const auto& entry) {
    const std::vector<AtomPtr>& atoms = entry.second.first.atoms;
    return atoms.size() <= 1 && (atoms.empty() || atoms[0]->kind == AtomKind::kSymbol);
  });
}
bool Dim::depends_on(int symbol) const {
  return DimOps::any_symbol(*this, [&](int id) { return id == symbol; });
}
bool Dim::piecewise_linear(std::vector<int64_t>* numbers) const { return DimOps::piecewise_linear(*this, numbers); }
std::string Dim::str(const std::vector<std::string>* names) const { return DimOps::str(*this, names); }
uint64_t Dim::fingerprint() const {
  WordSum sum;
  if (!poly_)
    sum.add(static_cast<uint64_t>(value_));
  else
    for (const auto& [key, term] : poly_->terms) {
      sum.add(key);
      sum.add(static_cast<uint64_t>(term.second));
    }
  return sum.sum();
}
Dim Dim::substitute(int id, const Dim& by) const { return DimOps::substitute(*this, id, by); }

int Dim::lone_symbol() const {
  if (!poly_ || poly_->terms.size() != 1) return -1;
  const auto& [monomial, coefficient] = poly_->terms.begin()->second;
  const bool lone = coefficient == 1 && monomial.atoms.size() == 1 && monomial.atoms[0]->kind == AtomKind::kSymbol;
  return lone ? monomial.atoms[0]->symbol : -1;
}
std::set<int> Dim::symbols() const {
  std::set<int> ids;
  DimOps::any_symbol(*this, [&](int id) { return ids.insert(id), false; });
  return ids;
}

bool of_sequence(const Dim& d) {
  return DimOps::any_symbol(d, [](int id) {
    const Provenance from = current_symbols().info(id).from;
    return from == Provenance::kSequence || from == Provenance::kSource;
  });
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return sat_add(a.value(), b.value());
  if (b == Dim(0)) return a;
  if (a == Dim(0)) return b;
  auto t = DimOps::terms(a);
  for (const auto& [key, term] : DimOps::terms(b)) {
    auto [it, fresh] = t.emplace(key, term);
    if (!fresh) it->second.second = sat_add(it->second.second, term.second);
  }
  return DimOps::from(std::move(t));
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return sat_mul(a.value(), b.value());
  if (a == Dim(0) || b == Dim(0)) return 0;
  if (b == Dim(1)) return a;
  if (a == Dim(1)) return b;
  DimOps::Terms out;
  for (const auto& [ka, ta] : DimOps::terms(a)) {
    DimOps::check_size(out);
    for (const auto& [kb, tb] : DimOps::terms(b)) {
      Monomial m = DimOps::product(ta.first, tb.first);
      const int64_t c = sat_mul(ta.second, tb.second);
      auto [it, fresh] = out.emplace(m.key, std::make_pair(m, c));
      if (!fresh) it->second.second = sat_add(it->second.second, c);
    }
  }
  return DimOps::from(std::move(out));
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.is_const() || b.is_const()) return a.is_const() && b.is_const() && a.value() == b.value();
  if (a.poly_ == b.poly_) return true;
  const auto &x = a.poly_->terms, &y = b.poly_->terms;
  if (x.size() != y.size()) return false;
  return std::equal(x.begin(), x.end(), y.begin(), [](const auto& p, const auto& q) {
    return p.first == q.first && p.second.second == q.second.second;
  });
}

Dim dim_div(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return div_trunc(a.value(), b.value());
  if (b == Dim(1)) return a;
  if (auto q = dim_exact_div(a, b)) return *q;
  if (b.is_const() && b.value() > 0) {
    // (384*E + 894) / 384 -> E + 2 + 126 / 384 -> E + 2: where nothing is below 0, multiples of the divisor go in
    // front.
    const auto [multiple, rest] = DimOps::split(a, b.value());
    if (multiple != Dim(0) && rest.is_const() && a.lower_bound() >= 0) return multiple;
  }
  return DimOps::apply(AtomKind::kDiv, a, b);
}

Dim dim_mod(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return mod_floor(a.value(), b.value());
  if (dim_exact_div(a, b)) return 0;
  if (b.is_const() && b.value() > 0) {
    const Dim same = DimOps::congruent(a, b.value());
    if (same.is_const()) return mod_floor(same.value(), b.value());
    // What is missing to a multiple (padding): mod(-S, 4) -> 4 * div(S + 3, 4) - S
    if (same.upper_bound() <= 0) return same + b * dim_div(b - Dim(1) - same, b);
    return DimOps::apply(AtomKind::kMod, same, b);
  }
  return DimOps::apply(AtomKind::kMod, a, b);
}

Dim dim_min(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return std::min(a.value(), b.value());
  const Dim d = b - a;
  if (d.lower_bound() >= 0) return a;
  if (d.upper_bound() <= 0) return b;
  return a.str() < b.str() ? DimOps::apply(AtomKind::kMin, a, b) : DimOps::apply(AtomKind::kMin, b, a);
}

Dim dim_max(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return std::max(a.value(), b.value());
  const Dim d = b - a;
  if (d.lower_bound() >= 0) return b;
  if (d.upper_bound() <= 0) return a;
  return a.str() < b.str() ? DimOps::apply(AtomKind::kMax, a, b) : DimOps::apply(AtomKind::kMax, b, a);
}

Dim dim_select(const Dim& condition, const Dim& a, const Dim& b) {
  if (condition.is_const()) return condition.value() != 0 ? a : b;
  if (a == b) return a;
  return DimOps::apply(AtomKind::kSelect, condition, a, b);
}

Dim dim_less(const Dim& a, const Dim& b) {
  const Dim d = b - a;
  if (d.lower_bound() > 0) return 1;
  if (d.upper_bound() <= 0) return 0;
  return DimOps::apply(AtomKind::kLess, a, b);
}

Dim dim_equal(const Dim& a, const Dim& b) {
  if (a == b) return 1;
  const Dim d = b - a;
  if (d.lower_bound() > 0 || d.upper_bound() < 0) return 0;
  return DimOps::apply(AtomKind::kEqual, a, b);
}

std::optional<Dim> dim_exact_div(const Dim& a, const Dim& b) {
  if (b == Dim(0)) return std::nullopt;
  if (a == Dim(0)) return Dim(0);
  return DimOps::exact_div(a, b);
}

Dim shape_count(const Shape& shape) {
  Dim n = 1;
  for (const Dim& d : shape) n = n * d;
  return n;
}

std::string shape_str(const Shape& shape, const std::vector<std::string>* names) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + shape[i].str(names);
  return out + "]";
}

bool shape_is_const(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is_const(); });
}

std::vector<int64_t> shape_values(const Shape& shape) {
  std::vector<int64_t> v;
  for (const Dim& d : shape) v.push_back(d.value());
  return v;
}

std::vector<int64_t> shape_eval(const Shape& shape, const SymbolValues& symbols) {
  std::vector<int64_t> v;
  for (const Dim& d : shape) v.push_back(d.eval(symbols));
  return v;
}

}  // namespace situ
