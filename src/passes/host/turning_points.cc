#include "passes/host/turning_points.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "passes/context/binding.h"

namespace situ {

int64_t token_axes(const Shape& s) {
  return std::count_if(s.begin(), s.end(), [](const Dim& d) { return d.depends_on(kSymS) || d.depends_on(kSymP); });
}

namespace {

constexpr int64_t kFewNumbers = 16;  // a constant of more is a table
constexpr int64_t kMostLimits = 96;
constexpr size_t kFewTurns = 32;   // of a table; one with more changes anywhere
constexpr size_t kMostPairs = 12;  // points whose sums and differences are looked at too
constexpr int64_t kMostTokens = 1 << 24;
constexpr double kLargestFactor = 4096;  // larger ones hide keys
constexpr int kMostSums = 3;             // of positions with themselves
constexpr size_t kMostFactors = 64;
constexpr int kMostHops = 64;  // casts and views in front of a number

// What these compute of positions is the same rule between the numbers that they compare with (Finder::plain says
// when). Mod, Sin and the like are not among them.
std::set<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}
const std::set<std::string> kPlainOps = words(
    "Abs Add And Cast CastLike Clip Concat ConstantOfShape CumSum Equal Expand EyeLike Flatten Gather "
    "GatherElements GatherND Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min Mul Neg "
    "Not Or Range ReduceMax ReduceMin ReduceSum Relu Reshape ScatterElements ScatterND Shape Size Slice "
    "Split Squeeze Sub Sum Tile Transpose Trilu Unsqueeze Where Xor");

constexpr int64_t kManyTokens = 64,
                  kFarTokens = 16384;  // steps that values are compared at: with two axes of tokens, with one

constexpr int64_t kFewTokens = 15;     // contexts of which every step is looked at
constexpr int64_t kShortSteps = 4;     // tokens of steps that are looked at whatever the rule
constexpr int64_t kSquare = 256;       // tokens of the longest step that is looked at whatever the rule
constexpr int64_t kEveryToken = 4096;  // contexts of which every step of one token may be looked at
constexpr int64_t kFarKeys = 1 << 20;  // a single query of 2^24 keys took 1 s and 1 GB for each mask
constexpr int64_t kMostSingleElements = int64_t{1} << 28;  // keys of all single queries together

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
  Finder(const Graph& graph, const Prober& prober, Judged judged)
      : graph_(graph), prober_(prober), compared_(judged == Judged::kCompared) {}

  TurningPoints find(const std::vector<ValueId>& roots) {
    for (ValueId v : roots) push(v);
    while (!open_.empty()) {
      const ValueId v = open_.back();
      open_.pop_back();
      visit(v);
    }
    const std::set<double> factors = this->factors(), given = given_;
    const std::set<int64_t> numbers = numbers_;
    numbers_.insert(turns_.begin(), turns_.end());
    given_.insert(turns_.begin(), turns_.end());
    multiply(factors);
    // More of them than can be looked at in pairs: every entry of the tables is.
    if (numbers_.size() > kMostPairs && !turns_.empty()) {
      found_.anywhere = true;
      numbers_ = numbers;
      given_ = given;
      multiply(factors);
    }
    const std::vector<int64_t> alone(numbers_.begin(), numbers_.end());
    if (alone.size() > kMostPairs)
      found_.plain = false;
    else
      for (size_t i = 0; i < alone.size(); ++i)
        for (size_t j = 0; j <= i; ++j) {
          add(alone[i] + alone[j]);
          if (i != j) add(alone[i] - alone[j]);
        }
    numbers_.insert(turns_.begin(), turns_.end());
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

  void multiply(const std::set<double>& factors) {
    const std::set<double> given = given_;
    for (const double factor : factors)
      for (const double n : given) add(n / factor);
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
    factors_of(n);
    if ((n.op == "Add" || n.op == "Sum") && like_with_like(n)) sums_ += static_cast<int>(n.in.size()) - 1;
    // Shapes that data is moved into say nothing of the data.
    static const std::set<std::string> kMoves{"Expand", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"};
    if (const auto number = lone_number(v)) add(*number);
    for (const char* key : {"k", "min", "max"})  // EyeLike, Clip of old
      if (const Attribute* a = n.attr(key)) add(a->kind == Attribute::Kind::kFloat ? a->f : static_cast<double>(a->i));
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
    if (compared_ && n.def && n.def->placement == Placement::kElementwise) return true;
    if (n.domain.empty() && n.op == "Div") return prober_.fixed(n.in[1]) && real(n.in[1]);
    if (!n.domain.empty() || !kPlainOps.count(n.op)) return false;
    if (n.op == "Cast") return !real(n.in[0]) || real(n.out[0]) || graph_.values[n.out[0]].info.type == DType::kBool;
    if (n.op == "Mul")
      return !prober_.changes(n.in[0]) || !prober_.changes(n.in[1]) || few_numbers(n.in[0]) || few_numbers(n.in[1]);
    // How many there are of what is 0 or 1. A sum of positions grows by more with each.
    if (n.op == "CumSum" || n.op == "ReduceSum") return !prober_.changes(n.in[0]) || few_numbers(n.in[0]).has_value();
    if (n.op == "Reshape" || n.op == "Flatten") return rows_of(n.in[0]) == rows_of(n.out[0]);
    if (n.op == "Tile") return repeats_whole_rows(n);
    return true;
  }

  // Axes whose extents follow the step, and how many elements stand from one row to the next.
  std::vector<std::pair<Dim, Dim>> rows_of(ValueId v) const {
    std::vector<std::pair<Dim, Dim>> rows;
    Dim stride = 1;
    const Shape& s = graph_.values[v].info.shape;
    for (size_t d = s.size(); d-- > 0; stride = stride * s[d])
      if (!s[d].is_const()) rows.emplace_back(s[d], stride);
    return rows;
  }

  // Positions do not begin anew along an axis of tokens.
  bool repeats_whole_rows(const Node& n) const {
    const Shape &x = graph_.values[n.in[0]].info.shape, &y = graph_.values[n.out[0]].info.shape;
    for (size_t d = 0; d < x.size() && d < y.size(); ++d)
      if (!(x[d] == y[d]) && !(x[d] == Dim(1)) && !(x[d].is_const() && y[d].is_const())) return false;
    return x.size() == y.size();
  }

  // Positions times a number are compared with others when they are as many times smaller.
  void factor(double number, bool of_integers, bool divided = false) {
    const double size = std::fabs(number);
    if (size >= kLargestFactor && of_integers) found_.plain = false;
    if (size > 0 && size < kLargestFactor && size != 1) factors_.push_back(divided ? 1 / size : size);
  }

  // What one position more may be in the result of a node: products with numbers, counts of them, every so many.
  void factors_of(const Node& n) {
    const auto integers = [&](ValueId v) { return !dtype_is_float(graph_.values[v].info.type); };
    if (n.op == "Mul" || n.op == "Div") {
      for (ValueId v : n.in) {
        const Tensor& t = graph_.values[v].constant;
        if (const auto numbers = few_numbers(v))
          for (double x : *numbers) factor(x, integers(v), n.op == "Div");
        else if (t.present() && integers(v) && t.count() <= kFewNumbers)
          for (double x : t.to_f64()) factor(x, true, n.op == "Div");
      }
    } else if (n.op == "CumSum" || n.op == "ReduceSum") {
      if (const auto numbers = few_numbers(n.in[0]))
        for (double x : *numbers) factor(x, integers(n.in[0]));
    } else if (n.op == "Range") {
      every(n, 2);
    } else if (n.op == "Slice" && n.has_input(4)) {
      every(n, 4);
    }
  }
  void every(const Node& n, size_t operand) {
    const Tensor& t = graph_.values[n.in[operand]].constant;
    const auto& content = graph_.values[n.in[operand]].info.content;
    if (t.present())
      for (double x : t.to_f64()) factor(x, true);
    else if (content && shape_is_const(*content))
      for (const Dim& d : *content) factor(static_cast<double>(d.value()), true);
    else
      found_.plain = false;
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
    if (!dtype_is_float(graph_.values[n.in[operand]].info.type)) return false;
    if (lone_number(n.in[operand])) return (n.op == "Where" && operand > 0) || n.op == "Mul";
    return graph_.values[n.in[operand]].constant.present() &&
           (n.op == "Mul" || n.op == "Div" || n.op == "Add" || n.op == "Sub");
  }

  // The number that a constant is, or that fills a value.
  std::optional<double> lone_number(ValueId v) const {
    const Tensor& t = graph_.values[v].constant;
    if (t.present()) return t.count() == 1 ? std::optional(t.to_f64()[0]) : std::nullopt;
    const Node* n = graph_.producer(v, "ConstantOfShape");
    if (!n) return std::nullopt;
    const Attribute* value = n->attr("value");
    if (!value) return 0;
    return value->tensor.count() == 1 ? std::optional(value->tensor.to_f64()[0]) : std::nullopt;
  }

  // The numbers that `v` is made of, where positions only tell which: 0 or 1, one number throughout, one or another.
  std::optional<std::vector<double>> few_numbers(ValueId v) const {
    for (int hops = 0; v != kNoValue && hops < kMostHops; ++hops) {
      if (const auto number = lone_number(v)) return std::vector<double>{*number};
      if (graph_.values[v].info.type == DType::kBool || prober_.zeros_and_ones(v)) return std::vector<double>{0, 1};
      const Node* n = graph_.producer(v);
      if (!n || !n->def) break;
      if (n->is("Where")) {
        const auto yes = lone_number(n->in[1]), no = lone_number(n->in[2]);
        return yes && no ? std::optional(std::vector<double>{*yes, *no}) : std::nullopt;
      }
      if (n->def->placement != Placement::kView && !n->is("Cast")) break;
      v = n->in[0];
    }
    return std::nullopt;
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
    turns_.insert(here.begin(), here.end());
    return true;
  }

  const Graph& graph_;
  const Prober& prober_;
  const bool compared_;
  TurningPoints found_;
  std::set<int64_t> numbers_;
  std::set<double> given_;   // as the graph has them
  std::set<int64_t> turns_;  // of tables: entries where one stops to go on as it did
  std::vector<double> factors_;
  int sums_ = 0;
  std::set<ValueId> seen_;
  std::vector<ValueId> open_;
};

}  // namespace

TurningPoints turning_points(const Graph& graph, const Prober& prober, const std::vector<ValueId>& roots,
                             Judged judged) {
  return Finder(graph, prober, judged).find(roots);
}

// A condition of a step is for its last query what it is where that one is a step of its own.
static bool last_query_is_alone(const Graph& graph, const Prober& prober, ValueId v, int64_t tokens, int64_t past) {
  const Result<Tensor> all = prober.host_value(v, tokens, past), last = prober.host_value(v, 1, past + tokens - 1);
  return all.is_ok() && last.is_ok() && part_agrees(graph.values[v].info.shape, *last, *all, tokens - 1);
}

TellingSteps telling_steps(const Graph& graph, const Prober& prober, const std::vector<ValueId>& rules, Phase phase,
                           int64_t context, Judged judged, int64_t most_elements) {
  TellingSteps found;
  std::set<std::pair<int64_t, int64_t>> steps, large;
  bool all_fit = true;
  int64_t elements = 0;  // of single queries
  const auto add = [&](int64_t tokens, int64_t past) {
    if (tokens < 1 || past < 0 || tokens + past > context || (phase == Phase::kDecode && tokens > 1) ||
        (phase == Phase::kFirst && past > 0))
      return;
    if (tokens > 1 && tokens * (tokens + past) > most_elements) {
      if (phase == Phase::kFirst) all_fit = false;  // has no step of its last query alone
      large.emplace(tokens, past);
      return;
    }
    if (steps.emplace(tokens, past).second && tokens == 1) elements += past;
  };
  const auto short_steps = [&](int64_t longest) {
    for (int64_t tokens = 1; tokens <= longest; ++tokens)
      for (int64_t past = 0; tokens + past <= longest; ++past) add(tokens, past);
  };
  const auto answer = [&](bool told) {
    found.told = told && all_fit && elements <= kMostSingleElements;
    found.steps.assign(steps.begin(), steps.end());
    return found;
  };
  short_steps(std::min(context, context <= kFewTokens ? kFewTokens : kShortSteps));
  if (context <= kFewTokens) return answer(true);
  int64_t longest = std::min(context, kSquare);
  while (longest * longest > most_elements) longest /= 2;
  add(longest, 0);
  const TurningPoints& points = found.points = turning_points(graph, prober, rules, judged);
  // Behind its last number a plain rule is the same: contexts without an end are looked at that far.
  const int64_t least = points.at.empty() ? 0 : points.at.back() + 4;
  const auto end = [&](int64_t far) {
    return points.plain && !points.anywhere ? std::min(context, std::max(far, least)) : context;
  };
  add(1, end(kFarKeys) - 1);
  add(2, end(most_elements / 2) - 2);
  // One token after the other is all that there is.
  if (phase == Phase::kDecode && !(points.plain && !points.anywhere) && context <= kEveryToken) {
    for (int64_t past = 0; past < context; ++past) add(1, past);
    return answer(true);
  }
  if (!points.plain || points.anywhere || points.at.size() > kMostTellingPoints) return answer(false);
  for (const int64_t n : points.at) {
    for (int64_t past = n - 2; past <= n + 1; ++past) add(1, past);
    add(4, n - 2);
    for (int64_t tokens = n - 1; tokens <= n + 1; ++tokens) add(tokens, 0);
  }
  return answer(std::all_of(large.begin(), large.end(), [&](const auto& step) {
    return std::all_of(points.conditions.begin(), points.conditions.end(), [&](ValueId v) {
      return !prober.changes(v) || last_query_is_alone(graph, prober, v, step.first, step.second);
    });
  }));
}

// Of sequences of up to `longest` tokens.
static bool same_entries(const Graph& graph, Prober& prober, ValueId v, int64_t longest, bool first) {
  const Shape& shape = graph.values[v].info.shape;
  const bool square = std::count_if(shape.begin(), shape.end(), [](const Dim& d) { return d.depends_on(kSymS); }) > 1;
  const int64_t far = std::min(longest, square ? kManyTokens : kFarTokens);
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
  const TurningPoints points = turning_points(graph, prober, {v}, Judged::kCompared);
  if (points.at.size() > kMostTellingPoints) return false;
  for (int64_t n : points.at)
    for (int64_t tokens = n - 1; tokens <= n + 1; ++tokens)
      if (!agrees(tokens, 0) || (!first && (!agrees(tokens, 3) || !agrees(3, tokens)))) return false;
  // Further on one token is compared with itself behind another one.
  for (size_t i = 0; i < points.at.size() && !first; ++i)
    for (int64_t past = std::max(far, points.at[i] - 2); past <= points.at[i] + 1 && past < longest; ++past) {
      const Result<Tensor> alone = prober.host_value(v, 1, past), behind = prober.host_value(v, 2, past - 1);
      if (!alone.is_ok() || !behind.is_ok() || !part_agrees(shape, *alone, behind->to_f64(), behind->dims(), 1))
        return false;
    }
  // A table of queries and keys is looked at in short steps; what chooses among its entries, in long ones too.
  return !square || std::all_of(points.conditions.begin(), points.conditions.end(),
                                [&](ValueId c) { return same_entries(graph, prober, c, longest, first); });
}

bool part_agrees(const Shape& shape, const Tensor& part, const Tensor& whole, int64_t past) {
  return part_agrees(shape, part, whole.to_f64(), whole.dims(), past);
}

// What a sequence has that will be longer is asked for at both sides of each of its switches: tables of those that end
// before one may end there too.
bool entries_by_position(const Graph& graph, Prober& prober, ValueId v, int64_t context, bool first) {
  const std::vector<int64_t> wholes = prober.wholes();
  bool same = true;
  for (size_t i = 0; i < wholes.size(); ++i) {
    prober.set_whole(wholes[i]);
    const int64_t longest = i + 1 < wholes.size() ? std::min(context, wholes[i + 1] - 1) : context;
    same = same && same_entries(graph, prober, v, longest, first);
  }
  prober.set_whole(0);
  return same;
}

}  // namespace situ
