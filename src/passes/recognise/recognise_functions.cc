// Norms, activations and softmax, spelt by exporters in many ways, are recognised by what they compute: a small
// cone of elementwise nodes and reductions is evaluated on random inputs and compared with closed forms.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "passes/context/builder.h"
#include "passes/context/node_key.h"
#include "passes/context/pass_context.h"
#include "passes/host/probe.h"
#include "passes/host/value_classes.h"
#include "passes/recognise/passes.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 16;         // the longest spelling seen (LayerNorm below opset 17) has 9
constexpr int64_t kMostProbed = 1 << 14;  // numbers, where rows can be left out
constexpr float kTolerance = 2e-5f;
// Where constants were rounded to half precision (sqrt(2) as 1.4141): so much of what the rounding of each may change,
// together, and no more than this in all. Erf and tanh GELU differ by half as much, so the nearest form is taken, not
// the first that fits.
constexpr float kRounding = 1.25f;
constexpr float kHalfTolerance = 1e-3f;

struct Match {
  std::string op, domain;
  float epsilon = 0;
  std::string approximate;
  float alpha = 0;
};

// The largest difference, relative to 1 + |b|; infinity where one is not a number or the sizes differ.
float distance(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const float d = std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i]));
    largest = d <= largest ? largest : d < INFINITY ? d : INFINITY;
  }
  return largest;
}

// What a graph gave for an input. `rounding`: how far from it the same with other constants may be, which become these
// in half precision; empty: not at all.
struct Probed {
  std::vector<float> in, out, rounding;
  bool fits(const std::vector<float>& form) const {
    if (rounding.empty()) return distance(out, form) <= kTolerance;
    for (size_t i = 0; i < out.size(); ++i) {
      const float size = 1 + std::fabs(form[i]), allowed = kTolerance * size + kRounding * rounding[i];
      if (!(std::fabs(out[i] - form[i]) <= std::min(allowed, kHalfTolerance * size))) return false;
    }
    return out.size() == form.size();
  }
};

// The next numbers of half precision are twice as far away. Nothing for numbers that no exporter rounds: 0.5, 1, 2, 3.
float rounding_of(float x, DType type) {
  if (x * 8 == std::round(x * 8)) return 0;
  return type == DType::kBF16 ? std::fabs(x) * 0x1p-8f : std::max(std::fabs(x) * 0x1p-11f, 0x1p-25f);
}

template <typename F>
std::vector<float> map(const std::vector<float>& x, F f) {
  std::vector<float> y;
  for (float v : x) y.push_back(static_cast<float>(f(static_cast<double>(v))));
  return y;
}

std::vector<float> activation(const Match& form, const std::vector<float>& x) {
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  if (form.op == "Swish") return map(x, [&](double v) { return v * sigmoid(v); });
  if (form.op == "QuickGelu") return map(x, [&](double v) { return v * sigmoid(1.702 * v); });
  if (form.approximate == "tanh")
    return map(x, [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); });
  return map(x, [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); });
}

// y = (x - mean) / sqrt(var + eps) over rows of `width`, or x / sqrt(mean(x^2) + eps) without centring.
std::vector<float> norm(const std::vector<float>& x, int64_t width, double eps, bool centre) {
  std::vector<float> y(x.size());
  for (size_t r = 0; r < x.size(); r += static_cast<size_t>(width)) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < width; ++i) mean += x[r + i];
    mean = centre ? mean / static_cast<double>(width) : 0;
    for (int64_t i = 0; i < width; ++i) square += (x[r + i] - mean) * (x[r + i] - mean);
    const double scale = 1 / std::sqrt(square / static_cast<double>(width) + eps);
    for (int64_t i = 0; i < width; ++i) y[r + i] = static_cast<float>((x[r + i] - mean) * scale);
  }
  return y;
}

// Over rows of `width`.
std::vector<float> softmax(const std::vector<float>& x, int64_t width) {
  std::vector<float> y(x.size());
  for (size_t r = 0; r < x.size(); r += static_cast<size_t>(width)) {
    const double largest =
        *std::max_element(x.begin() + static_cast<int64_t>(r), x.begin() + static_cast<int64_t>(r) + width);
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(x[r + i] - largest);
    for (int64_t i = 0; i < width; ++i) y[r + i] = static_cast<float>(std::exp(x[r + i] - largest) / sum);
  }
  return y;
}

// epsilon = (x / y)^2 - mean(x^2), measured where x is so small that epsilon matters.
double solve_epsilon(const std::vector<float>& x, const std::vector<float>& y, int64_t width, bool centre) {
  double mean = 0, square = 0;
  for (int64_t i = 0; i < width; ++i) mean += x[i];
  mean = centre ? mean / static_cast<double>(width) : 0;
  int64_t best = 0;
  for (int64_t i = 0; i < width; ++i) {
    square += (x[i] - mean) * (x[i] - mean);
    if (std::fabs(x[i] - mean) > std::fabs(x[best] - mean)) best = i;
  }
  const double ratio = (x[best] - mean) / static_cast<double>(y[best]);
  return ratio * ratio - square / static_cast<double>(width);
}

// The epsilon as a file would spell it: 1e-5, 1e-6, 1e-12 ... when the measurement is within its error.
float round_epsilon(double e) {
  if (!(e > 0)) return 0;
  const double exponent = std::floor(std::log10(e) + 0.5);
  const double power = std::pow(10.0, exponent);
  return static_cast<float>(std::fabs(e - power) < 0.02 * power ? power : e);
}

class Recogniser {
 public:
  explicit Recogniser(PassContext& context)
      : context_(context),
        graph_(context.graph),
        classes_(graph_),
        prober_(graph_, context.binding, context.evaluator) {}

  Status run() {
    std::vector<std::pair<int, Replacement>> found;
    std::set<int> used;
    for (int n = static_cast<int>(graph_.nodes.size()) - 1; n >= 0; --n) {
      if (used.count(n) || !candidate(graph_.nodes[n])) continue;
      Replacement r;
      if (!recognise(graph_.nodes[n].out[0], &r)) continue;
      for (int c : r.cone.nodes) used.insert(c);
      found.emplace_back(n, r);
    }
    return found.empty() ? Status::ok() : rewrite(found);
  }

 private:
  struct Replacement {
    ValueId x = kNoValue;
    Match match;
    Cone cone;
  };

  static bool candidate(const Node& n) {
    return n.domain.empty() && (n.op == "Mul" || n.op == "Div" || n.op == "Add") && n.out.size() == 1;
  }

  bool plain(const Cone& cone) const {
    bool core = false;
    for (int i : cone.nodes) {
      const Node& n = graph_.nodes[i];
      if (!n.domain.empty() || !n.def) return false;
      // What changes with the step would be probed at one step alone.
      if (std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return prober_.changes(v); })) return false;
      if (n.op == "ReduceMean" || n.op == "ReduceSum" || n.op == "Erf" || n.op == "Tanh" || n.op == "Sigmoid")
        core = true;
      else if (n.op != "ReduceMax" && n.def->placement != Placement::kElementwise && n.op != "Cast" && n.op != "Pow")
        return false;
    }
    return core;
  }

  bool recognise(ValueId root, Replacement* r) {
    const Shape& shape = graph_.values[root].info.shape;
    if (graph_.values[root].info.type != DType::kF32 || prober_.known(root) || shape.empty()) return false;
    bool found = false;
    for (ValueId x : prober_.dominators(root, kMaxConeNodes)) {
      if (graph_.values[x].info.type != DType::kF32 || !(graph_.values[x].info.shape == shape)) continue;
      auto cone = prober_.cone(root, x, kMaxConeNodes);
      if (!cone || !plain(*cone)) continue;
      const std::optional<Match>& match = told(root, x, *cone);
      if (!match || (found && match->op != "Softmax")) continue;
      *r = {x, *match, *cone};
      found = true;
      if (match->op != "Softmax") break;  // that is of what the largest is taken away from, further up
    }
    return found;
  }

  // What `root` computes of `x`; looked at once for cones of the same nodes and numbers.
  const std::optional<Match>& told(ValueId root, ValueId x, const Cone& cone) {
    const std::string key = cone_key(graph_, cone.nodes, x, [&](ValueId v) {
      const bool alone = context_.rounded.count(v) > 0;
      return alone ? "r" + std::to_string(v) : std::to_string(classes_.of(v));
    });
    const auto [it, fresh] = told_.try_emplace(key);
    if (fresh) it->second = tell(root, x, cone);
    return it->second;
  }

  std::optional<Match> tell(ValueId root, ValueId x, const Cone& cone) {
    choose_dims(root, x);
    find_rounded(cone);
    if (may_be_softmax(cone) && is_softmax(root, x)) return Match{"Softmax", ""};
    const Dim& width = graph_.values[root].info.shape.back();
    if (!width.is_const()) return std::nullopt;
    const bool rows = width == Dim(1) || std::any_of(cone.nodes.begin(), cone.nodes.end(),
                                                     [&](int i) { return graph_.nodes[i].op.starts_with("Reduce"); });
    return compare(root, x, rows);
  }

  Result<Tensor> at(ValueId root, ValueId x, const Tensor& input) {
    return prober_.evaluate(root, {{x, input}}, context_.probe_tokens(), context_.probe_past());
  }

  // Of what is probed: of x at a small step. What an encoder has thousands of, rows that are treated alike, becomes
  // two, unless something in the cone has as many; so do rows of which a small step has none (one for four tokens).
  void choose_dims(ValueId root, ValueId x) {
    const std::vector<int64_t> all = prober_.dims(x, context_.probe_tokens(), context_.probe_past());
    const auto count = [](const std::vector<int64_t>& dims) {
      return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    };
    dims_ = all;
    for (size_t a = 0; a + 1 < dims_.size(); ++a)
      if (dims_[a] == 0) dims_[a] = 2;
    for (size_t a = 0; a + 1 < dims_.size() && count(dims_) > kMostProbed; ++a)
      dims_[a] = std::min<int64_t>(dims_[a], 2);
    if (dims_ != all && !at(root, x, scaled(1, 1)).is_ok()) dims_ = all;
  }

  Tensor scaled(float factor, uint32_t seed) {
    Tensor t = prober_.random(dims_, seed);
    for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] *= factor;
    return t;
  }

  // Numbers of a cone that may be others, rounded to half precision.
  void find_rounded(const Cone& cone) {
    others_.clear();
    for (const int i : cone.nodes)
      for (const ValueId v : graph_.nodes[static_cast<size_t>(i)].in) {
        const auto it = context_.rounded.find(v);
        if (it == context_.rounded.end() || !prober_.fixed(v) || others_.count(v)) continue;
        const Result<Tensor> now = prober_.host_value(v, context_.probe_tokens(), context_.probe_past());
        if (!now.is_ok() || now->type() != DType::kF32) continue;
        Tensor other = Tensor::allocate(DType::kF32, now->dims());
        const std::vector<float> numbers = floats(*now);
        bool rounds = false;
        for (size_t i = 0; i < numbers.size(); ++i) {
          const float by = rounding_of(numbers[i], it->second);
          other.view().as<float>()[i] = numbers[i] + by;
          rounds = rounds || by != 0;
        }
        if (rounds) others_[v] = other;
      }
  }

  std::optional<Probed> probe(ValueId root, ValueId x, const Tensor& input) {
    const Result<Tensor> output = at(root, x, input);
    if (!output.is_ok()) return std::nullopt;
    Probed probed{floats(input), floats(*output), {}};
    for (const auto& [v, other] : others_) {
      const Result<Tensor> changed =
          prober_.evaluate(root, {{x, input}, {v, other}}, context_.probe_tokens(), context_.probe_past());
      if (!changed.is_ok()) return std::nullopt;
      const std::vector<float> now = floats(*changed);
      probed.rounding.resize(now.size());
      for (size_t i = 0; i < now.size(); ++i) probed.rounding[i] += std::fabs(now[i] - probed.out[i]);
    }
    return probed;
  }

  // What fits at one size may be clipped at others.
  template <typename Form>
  bool holds_everywhere(ValueId root, ValueId x, Form form) {
    return holds_at(root, x, {0.03f, 30.0f, 300.0f, 10000.0f}, form);
  }
  template <typename Form>
  bool holds_at(ValueId root, ValueId x, std::initializer_list<float> sizes, Form form) {
    for (float size : sizes) {
      const std::optional<Probed> probed = probe(root, x, scaled(size, 3));
      if (!probed || !probed->fits(form(probed->in))) return false;
    }
    return true;
  }

  // Sums, and nothing that shows beyond the numbers that are probed (Clip).
  bool may_be_softmax(const Cone& cone) const {
    static const std::set<std::string> kOps{"Exp",       "Sub",       "Mul",  "Div",     "Reciprocal",
                                            "ReduceMax", "ReduceSum", "Cast", "Identity"};
    return std::all_of(cone.nodes.begin(), cone.nodes.end(), [&](int i) { return kOps.count(graph_.nodes[i].op); }) &&
           std::any_of(cone.nodes.begin(), cone.nodes.end(), [&](int i) { return graph_.nodes[i].is("ReduceSum"); });
  }

  // Also of numbers so small that something added to the sum would show; and of such that a sum without the largest
  // taken away still holds.
  bool is_softmax(ValueId root, ValueId x) {
    for (const auto& [size, shift] :
         {std::pair{4.0f, 0.0f}, {0.03f, 0.0f}, {10.0f, 0.0f}, {1.0f, -30.0f}, {1.0f, 30.0f}}) {
      const Tensor input = scaled(size, 4);
      for (int64_t i = 0; i < input.count(); ++i) input.view().as<float>()[i] += shift;
      const Result<Tensor> output = at(root, x, input);
      if (!output.is_ok()) return false;
      const std::vector<float> got = floats(*output), form = softmax(floats(input), input.dims().back());
      for (size_t i = 0; i < form.size(); ++i)
        if (got.size() != form.size() || !(std::fabs(got[i] - form[i]) <= kTolerance * form[i] + 1e-12f)) return false;
    }
    return true;
  }

  // `rows`: numbers of a row may depend on each other.
  std::optional<Match> compare(ValueId root, ValueId x, bool rows) {
    const Tensor input = scaled(4.0f, 1);
    const std::optional<Probed> probed = probe(root, x, input);
    if (!probed) return std::nullopt;
    const Match activations[] = {{"Swish", "", 0, "", 1},
                                 {"QuickGelu", "com.microsoft", 0, "", 1.702f},
                                 {"Gelu", "", 0, "none"},
                                 {"Gelu", "", 0, "tanh"}};
    float nearest = INFINITY;
    std::optional<Match> match;
    for (const Match& form : activations) {
      const std::vector<float> y = activation(form, probed->in);
      if (const float d = distance(probed->out, y); d < nearest && probed->fits(y)) nearest = d, match = form;
    }
    if (match)
      return holds_everywhere(root, x, [&](const std::vector<float>& v) { return activation(*match, v); })
                 ? match
                 : std::nullopt;
    if (!rows) return std::nullopt;
    const int64_t width = input.dims().back();
    for (bool centre : {false, true}) {
      const auto eps = epsilon(root, x, width, centre);
      if (!eps) return std::nullopt;
      const auto form = [&](const std::vector<float>& v) { return norm(v, width, *eps, centre); };
      // Rows so small that an epsilon matters tell where it is added: to the mean of squares, or to its root.
      if (probed->fits(form(probed->in)) && holds_at(root, x, {1e-6f, 1e-5f, 1e-4f, 1e-3f}, form) &&
          holds_everywhere(root, x, form))
        return Match{centre ? "LayerNormalization" : "RMSNormalization", "", *eps};
    }
    return std::nullopt;
  }

  // Measured on rows of 1e-3, and once more on rows as small as its root; nothing where the graph cannot be evaluated.
  std::optional<float> epsilon(ValueId root, ValueId x, int64_t width, bool centre) {
    double e = 0, size = 1e-3;
    for (int i = 0; i < 2; ++i, size = std::clamp(std::sqrt(std::fabs(e)), 1e-6, 1e-3)) {
      const Tensor small = scaled(static_cast<float>(size), 2);
      Result<Tensor> y = at(root, x, small);
      if (!y.is_ok()) return std::nullopt;
      e = solve_epsilon(floats(small), floats(*y), width, centre);
    }
    return round_epsilon(e);
  }

  // The constant vector that `v`'s only user multiplies it by (or adds), and that user; else nothing.
  std::optional<std::pair<int, ValueId>> affine(const std::vector<std::vector<std::pair<int, int>>>& users, ValueId v,
                                                const char* op) const {
    if (users[v].size() != 1 || graph_.is_output(v)) return std::nullopt;
    const auto [u, operand] = users[v][0];
    const Node& n = graph_.nodes[u];
    if (!n.is(op) || n.in.size() != 2) return std::nullopt;
    const ValueId other = n.in[1 - operand];
    const Tensor& t = graph_.values[other].constant;
    const Dim width = graph_.values[v].info.shape.back();
    if (!t.present() || t.rank() != 1 || t.type() != DType::kF32 || Dim(t.count()) != width) return std::nullopt;
    return std::make_pair(u, other);
  }

  Status rewrite(const std::vector<std::pair<int, Replacement>>& found) {
    const auto users = graph_.users();
    std::map<int, Replacement> at_node(found.begin(), found.end());
    std::set<int> dropped;
    std::vector<std::function<void(Builder&)>> emit(graph_.nodes.size());
    for (const auto& [index, r] : found) {
      std::vector<ValueId> operands{r.x};
      int last = index;
      ValueId result = graph_.nodes[index].out[0];
      const bool is_norm = r.match.op == "RMSNormalization" || r.match.op == "LayerNormalization";
      if (is_norm) {
        auto scale = affine(users, result, "Mul");
        if (scale) last = scale->first;
        operands.push_back(scale ? scale->second : ones(graph_.values[result].info.shape.back().value()));
        result = graph_.nodes[last].out[0];
        auto bias = r.match.op == "LayerNormalization" ? affine(users, result, "Add") : std::nullopt;
        if (bias) {
          last = bias->first;
          operands.push_back(bias->second);
          result = graph_.nodes[last].out[0];
        }
      }
      dropped.insert(index);
      dropped.insert(last);
      const bool is_softmax = r.match.op == "Softmax";
      context_.note(is_norm      ? "norm"
                    : is_softmax ? "softmax"
                                 : "activation",
                    graph_.nodes[index].name, r.match.op + (r.match.approximate == "tanh" ? " (tanh)" : ""));
      const Match match = r.match;
      emit[last] = [operands, result, match, is_norm, is_softmax](Builder& b) {
        b.op(match.op, operands, result, match.domain);
        if (!match.approximate.empty()) b.last().set_string("approximate", match.approximate);
        if (match.alpha != 0) b.last().set_float("alpha", match.alpha);
        if (is_softmax) b.last().set_int("axis", -1);
        if (!is_norm) return;
        b.last().set_float("epsilon", match.epsilon);  // none is 0, not the default
        b.last().set_int("axis", -1);
      };
    }
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (emit[n]) {
        builder.start(nodes[n]);
        emit[n](builder);
      }
      // Values inside the cone that others use keep their nodes; the rest are dead now.
      if (!dropped.count(static_cast<int>(n))) builder.keep(std::move(nodes[n]));
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

  ValueId ones(int64_t width) {
    Tensor t = Tensor::allocate(DType::kF32, {width});
    for (int64_t i = 0; i < width; ++i) t.view().as<float>()[i] = 1.0f;
    return graph_.add_constant("ones_" + std::to_string(width), t);
  }

  std::vector<int64_t> dims_;
  std::map<ValueId, Tensor> others_;  // of the cone that is probed
  PassContext& context_;
  Graph& graph_;
  const ValueClasses classes_;
  std::map<std::string, std::optional<Match>> told_;  // by what the cone computes
  Prober prober_;
};

}  // namespace

Status recognise_functions(PassContext& context) { return Recogniser(context).run(); }

}  // namespace situ
