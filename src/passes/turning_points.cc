#include "passes/turning_points.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace situ {
namespace {

constexpr int64_t kFewNumbers = 16;  // a constant of more is a table
constexpr int64_t kMostLimits = 96;
constexpr size_t kFewTurns = 32;   // of a table; one with more changes anywhere
constexpr size_t kMostPairs = 12;  // points whose sums and differences are looked at too
constexpr int64_t kMostTokens = 1 << 24;
constexpr double kLargestFactor = 4096;  // larger ones hide keys
constexpr int kMostSums = 3;             // of positions with themselves
constexpr size_t kMostFactors = 64;

// What these compute of positions is the same rule between the numbers that they compare with. Mod, Sin and the like
// are not among them.
const std::set<std::string> kPlainOps{"Abs",
                                      "Add",
                                      "And",
                                      "Cast",
                                      "CastLike",
                                      "Clip",
                                      "Concat",
                                      "ConstantOfShape",
                                      "CumSum",
                                      "Equal",
                                      "Expand",
                                      "EyeLike",
                                      "Flatten",
                                      "Gather",
                                      "GatherElements",
                                      "GatherND",
                                      "Greater",
                                      "GreaterOrEqual",
                                      "Identity",
                                      "IsInf",
                                      "IsNaN",
                                      "Less",
                                      "LessOrEqual",
                                      "Max",
                                      "Min",
                                      "Mul",
                                      "Neg",
                                      "Not",
                                      "Or",
                                      "Range",
                                      "ReduceMax",
                                      "ReduceMin",
                                      "ReduceSum",
                                      "Relu",
                                      "Reshape",
                                      "ScatterElements",
                                      "ScatterND",
                                      "Shape",
                                      "Size",
                                      "Slice",
                                      "Split",
                                      "Squeeze",
                                      "Sub",
                                      "Sum",
                                      "Tile",
                                      "Transpose",
                                      "Trilu",
                                      "Unsqueeze",
                                      "Where",
                                      "Xor"};

constexpr int64_t kManyTokens = 64,
                  kFarTokens = 16384;  // steps that values are compared at: with two axes of tokens, with one

int64_t token_axes(const Shape& s) {
  return std::count_if(s.begin(), s.end(), [](const Dim& d) { return d.depends_on(kSymS) || d.depends_on(kSymP); });
}

// `part` is what `whole` has for the new tokens from `past` on and the keys up to them.
bool part_agrees(const Shape& shape, const Tensor& part, const std::vector<double>& whole,
                 const std::vector<int64_t>& large, int64_t past) {
  const std::vector<double> a = part.to_f64();
  const std::vector<int64_t> small = part.dims();
  if (small.size() != large.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0, stride = 1;
    for (size_t d = small.size(); d-- > 0;) {
      const bool new_tokens = small[d] < large[d] && !shape[d].depends_on(kSymP);
      const int64_t index = rest % small[d] + (new_tokens ? past : 0);
      if (small[d] > large[d] || index >= large[d]) return false;
      at += index * stride;
      rest /= small[d];
      stride *= large[d];
    }
    const double x = a[i], y = whole[static_cast<size_t>(at)];
    if (!(x == y) && !(x != x && y != y) && !(std::fabs(x - y) <= 1e-5 * (1 + std::fabs(y)))) return false;
  }
  return true;
}

class Finder {
 public:
  Finder(const Graph& graph, const Prober& prober) : graph_(graph), prober_(prober) {}

  TurningPoints find(const std::vector<ValueId>& roots) {
    for (ValueId v : roots) push(v);
    while (!open_.empty()) {
      const ValueId v = open_.back();
      open_.pop_back();
      visit(v);
    }
    const std::set<double> given = given_;
    for (const double factor : factors())
      for (const double n : given) add(n / factor);
    const std::vector<int64_t> alone(numbers_.begin(), numbers_.end());
    if (alone.size() > kMostPairs)
      found_.plain = false;
    else
      for (size_t i = 0; i < alone.size(); ++i)
        for (size_t j = 0; j <= i; ++j) {
          add(alone[i] + alone[j]);
          if (i != j) add(alone[i] - alone[j]);
        }
    found_.at.assign(numbers_.begin(), numbers_.end());
    return found_;
  }

 private:
  void push(ValueId v) {
    if (v != kNoValue && seen_.insert(v).second) open_.push_back(v);
  }

  void add(double number) {
    given_.insert(std::fabs(number));
    const double n = std::ceil(std::fabs(number));
    if (n >= 2 && n <= static_cast<double>(kMostTokens)) numbers_.insert(static_cast<int64_t>(n));
  }

  void visit(ValueId v) {
    const Value& value = graph_.values[v];
    if (value.constant.present()) {
      constant(value.constant);
      return;
    }
    if (value.info.type == DType::kBool && token_axes(value.info.shape) <= 1) found_.conditions.push_back(v);
    if (value.info.content) {
      for (const Dim& d : *value.info.content) {
        std::vector<int64_t> in_it;
        if (!d.piecewise_linear(&in_it)) found_.plain = false;
        for (int64_t n : in_it) add(static_cast<double>(n));
      }
      return;
    }
    if (value.producer < 0) return;  // positions
    const Node& n = graph_.nodes[value.producer];
    if (!plain(n)) found_.plain = false;
    if (n.op == "Mul" || n.op == "Div")
      for (ValueId x : n.in) scaled_by(x, n.op == "Div");
    if ((n.op == "Add" || n.op == "Sum") && like_with_like(n)) ++sums_;
    // Shapes that data is moved into say nothing of the data.
    static const std::set<std::string> kMoves{"Expand", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"};
    if (n.op == "ConstantOfShape" || n.op == "Shape") return;
    const bool compares = n.op == "Less" || n.op == "LessOrEqual" || n.op == "Greater" || n.op == "GreaterOrEqual" ||
                          n.op == "Equal" || n.op == "Min" || n.op == "Max";
    for (size_t i = 0; i < n.in.size() && (i == 0 || !kMoves.count(n.op)); ++i) {
      if (n.in[i] == kNoValue || not_a_position(n, i)) continue;
      push(n.in[i]);
      if (compares) limits(graph_.values[n.in[i]].constant);
    }
  }

  bool plain(const Node& n) const {
    auto real = [&](ValueId v) { return dtype_is_float(graph_.values[v].info.type); };
    if (n.domain.empty() && n.op == "Div") return prober_.fixed(n.in[1]) && real(n.in[1]);
    if (!n.domain.empty() || !kPlainOps.count(n.op)) return false;
    if (n.op == "Cast") return !real(n.in[0]) || real(n.out[0]) || graph_.values[n.out[0]].info.type == DType::kBool;
    if (n.op == "Mul")
      return !prober_.changes(n.in[0]) || !prober_.changes(n.in[1]) || one_or_other(n.in[0]) || one_or_other(n.in[1]);
    return true;
  }

  // Positions times a number are compared with others when they are as many times smaller.
  void scaled_by(ValueId v, bool divided) {
    const Tensor& t = graph_.values[v].constant;
    if (!t.present() || t.count() != 1) return;
    const double factor = std::fabs(t.to_f64()[0]);
    if (factor >= kLargestFactor && !dtype_is_float(t.type())) found_.plain = false;
    if (factor > 0 && factor < kLargestFactor && factor != 1) factors_.push_back(divided ? 1 / factor : factor);
  }

  // Of tokens with tokens, of keys with keys or of lengths with lengths: a position may be in the sum twice.
  bool like_with_like(const Node& n) const {
    if (!std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) { return prober_.changes(v); })) return false;
    auto axes = [&](ValueId v) {  // from the last one
      const Shape& s = graph_.values[v].info.shape;
      std::set<size_t> found;
      for (size_t d = 0; d < s.size(); ++d)
        if (s[d].depends_on(kSymS) || s[d].depends_on(kSymP)) found.insert(s.size() - d);
      return found;
    };
    return std::adjacent_find(n.in.begin(), n.in.end(), [&](ValueId a, ValueId b) { return axes(a) == axes(b); }) !=
           n.in.end();
  }

  // Of positions in what is compared: each may apply or not.
  std::set<double> factors() {
    std::set<double> products{1};
    auto times = [&](const std::set<double>& all) {
      const std::set<double> before = products;
      for (double x : before)
        for (double y : all) products.insert(x * y);
    };
    for (size_t i = 0; i < factors_.size() && products.size() <= kMostFactors; ++i) times({factors_[i]});
    if (sums_ > 0 && sums_ <= kMostSums) {
      std::set<double> multiples;
      for (int m = 2; m <= 1 << sums_; ++m) multiples.insert(m);
      times(multiples);
    }
    if (sums_ > kMostSums || products.size() > kMostFactors) found_.plain = false;
    products.erase(1);
    return products;
  }

  // Numbers that are added where a key is hidden, and factors of one number a head: no position is compared with them.
  bool not_a_position(const Node& n, size_t operand) const {
    const Tensor& t = graph_.values[n.in[operand]].constant;
    if (!t.present()) return false;
    if (t.count() == 1) return dtype_is_float(t.type()) && ((n.op == "Where" && operand > 0) || n.op == "Mul");
    return dtype_is_float(t.type()) && (n.op == "Mul" || n.op == "Div" || n.op == "Add" || n.op == "Sub");
  }

  // 0 or 1, or one number throughout.
  bool one_or_other(ValueId v) const {
    while (graph_.values[v].info.type != DType::kBool) {
      const int p = graph_.values[v].producer;
      if (p >= 0 && graph_.nodes[p].is("ConstantOfShape")) return true;
      if (p < 0 || !graph_.nodes[p].def ||
          (graph_.nodes[p].def->placement != Placement::kView && !graph_.nodes[p].is("Cast")))
        return false;
      v = graph_.nodes[p].in[0];
      if (v == kNoValue) return false;
    }
    return true;
  }

  // Numbers that positions are compared with, each its own.
  void limits(const Tensor& t) {
    if (!t.present() || t.count() <= kFewNumbers) return;  // small ones are all looked at
    if (t.count() > kMostLimits)
      found_.anywhere = true;
    else
      for (double x : t.to_f64()) add(x);
  }

  void constant(const Tensor& t) {
    if (t.count() <= kFewNumbers) {
      for (double x : t.to_f64()) add(x);
      return;
    }
    if (found_.anywhere) return;
    const std::vector<double> x = t.to_f64();
    int64_t inner = 1;
    for (size_t d = t.dims().size(); d-- > 0;) {
      const int64_t length = t.dims()[d];
      if (length > kFewNumbers && !turns(x, length, inner)) {
        found_.anywhere = true;
        return;
      }
      inner *= length;
    }
    // What a table is read up to.
    for (int64_t length : t.dims()) add(static_cast<double>(length));
  }

  // Entries where the table stops to go on as it did, along an axis; false: too many.
  bool turns(const std::vector<double>& x, int64_t length, int64_t inner) {
    std::set<int64_t> here;
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) / inner % length;
      if (at < 2) continue;
      const double a = x[i - static_cast<size_t>(2 * inner)], b = x[i - static_cast<size_t>(inner)], c = x[i];
      if (a - b == b - c || std::fabs((a - b) - (b - c)) <= 1e-5 * (std::fabs(a) + std::fabs(b) + std::fabs(c)))
        continue;
      here.insert(at);
      if (here.size() > kFewTurns) return false;
    }
    for (int64_t at : here) add(static_cast<double>(at));
    return true;
  }

  const Graph& graph_;
  const Prober& prober_;
  TurningPoints found_;
  std::set<int64_t> numbers_;
  std::set<double> given_;  // as the graph has them
  std::vector<double> factors_;
  int sums_ = 0;
  std::set<ValueId> seen_;
  std::vector<ValueId> open_;
};

}  // namespace

TurningPoints turning_points(const Graph& graph, const Prober& prober, const std::vector<ValueId>& roots) {
  return Finder(graph, prober).find(roots);
}

static bool same_entries(const Graph& graph, Prober& prober, ValueId v, int64_t context, bool first) {
  const Shape& shape = graph.values[v].info.shape;
  const bool square = std::count_if(shape.begin(), shape.end(), [](const Dim& d) { return d.depends_on(kSymS); }) > 1;
  const int64_t far = std::min(context, square ? kManyTokens : kFarTokens);
  const Result<Tensor> all = prober.host_value(v, far, 0);
  if (!all.is_ok()) return false;
  const std::vector<double> whole = all->to_f64();
  auto agrees = [&](int64_t tokens, int64_t past) {
    if (tokens < 1 || tokens + past > far) return true;
    const Result<Tensor> part = prober.host_value(v, tokens, past);
    return part.is_ok() && part_agrees(shape, *part, whole, all->dims(), past);
  };
  // The first position alone tells little: rotary tables hold 1 and 0 there, whatever made them.
  for (int64_t past : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{17}, far / 4, far / 2, far - 1})
    if (first ? !agrees(past + 1, 0)
              : !agrees(1, past) || !agrees(2, past) || !agrees(5, past) || !agrees(kManyTokens / 2, past))
      return false;
  const TurningPoints points = turning_points(graph, prober, {v});
  for (int64_t n : points.at)
    for (int64_t tokens = n - 1; tokens <= n + 1; ++tokens)
      if (!agrees(tokens, 0) || (!first && (!agrees(tokens, 3) || !agrees(3, tokens)))) return false;
  // A table of queries and keys is looked at in short steps; what chooses among its entries, in long ones too.
  return !square || std::all_of(points.conditions.begin(), points.conditions.end(),
                                [&](ValueId c) { return same_entries(graph, prober, c, context, first); });
}

// What a sequence has that will be longer is asked for at both sides of each of its switches.
bool entries_by_position(const Graph& graph, Prober& prober, ValueId v, int64_t context, bool first) {
  bool same = true;
  for (const int64_t whole : prober.wholes()) {
    prober.set_whole(whole);
    same = same && same_entries(graph, prober, v, context, first);
  }
  prober.set_whole(0);
  return same;
}

std::vector<std::pair<int64_t, int64_t>> steps_beside(const TurningPoints& points, int64_t context,
                                                      int64_t most_elements) {
  std::set<std::pair<int64_t, int64_t>> steps;
  auto add = [&](int64_t tokens, int64_t past) {
    if (tokens > 0 && past >= 0 && tokens + past <= context && tokens * (tokens + past) <= most_elements)
      steps.emplace(tokens, past);
  };
  for (int64_t n : points.at) {
    for (int64_t past = n - 2; past <= n + 1; ++past) add(1, past);
    add(4, n - 2);
    for (int64_t tokens = n - 1; tokens <= n + 1; ++tokens) add(tokens, 0);
  }
  return {steps.begin(), steps.end()};
}

}  // namespace situ
