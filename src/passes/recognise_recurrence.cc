// A recurrence that is written out for all tokens of a step becomes one operator, which takes them one by one:
//   h_t = exp(g_t) h_(t-1) + k_t v_t'      or, with the delta rule, + k_t (beta_t (v_t - (exp(g_t) h_(t-1))' k_t))'
//   y_t = scale h_t' q_t                   or h_t' q_t + D v_t, D a number for each head
//     -> y, h_S = situ.LinearAttention(q, k, v, h_0, g, beta)        h [1, H, K, V] or [1, H, V, K]
// Mamba-2's scan is one: q = C, k = B, v = dt x, g = A dt. How it is written (sums of decays, a mask, chunks that are
// padded and joined again) makes no difference: what the graph between projections and results computes is evaluated on
// random numbers, for one token to find q, k, v, g and beta among its values, and for several to see that they are
// them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "kernels/params.h"
#include "passes/builder.h"
#include "passes/pass.h"
#include "passes/probe.h"
#include "passes/turning_points.h"

namespace situ {
namespace {

constexpr size_t kMostNodes = 512;    // between projections and results
constexpr int kMostResults = 6;       // values that may be y
constexpr int64_t kMostTokens = 640;  // of a probed step
constexpr double kSame = 1e-4;        // sums in another order; other operands differ by far more

// A value with a row for each token, whatever the order of its axes: [S, width].
struct Rows {
  ValueId value = kNoValue;
  int axis = 0;  // of the tokens
  int64_t width = 0;
};

// What stands for a recurrence. The first of a list of rows may be none: kNoValue.
struct Match {
  Rows q, k, v, decay, beta, skipped;  // skipped: D times it is added to the result
  std::vector<float> factors;          // D, by head
  float scale = 1;
  bool columns_first = false;
  int64_t heads = 0, keys = 0, values = 0;
  int64_t q_heads() const { return q.width / keys; }
  int64_t k_heads() const { return k.width / keys; }
  int64_t results() const { return std::max(q_heads(), heads); }
};

// The numbers of one evaluation, of rows as [S, width].
using Numbers = std::map<ValueId, std::vector<float>>;

// Largest difference, as a part of the largest number, is small enough.
bool same(const std::vector<float>& got, const std::vector<double>& want) {
  double largest = 1e-30;
  for (const double x : want) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - want[i]) <= kSame * largest)) return false;
  return got.size() == want.size();
}

std::vector<float> by_token(const Tensor& t, int axis) {
  const std::vector<float> all = floats(t);
  int64_t inner = 1;
  for (size_t a = static_cast<size_t>(axis) + 1; a < t.dims().size(); ++a) inner *= t.dims()[a];
  const int64_t tokens = t.dims()[static_cast<size_t>(axis)], outer = t.count() / std::max<int64_t>(1, inner * tokens);
  std::vector<float> rows(all.size());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t s = 0; s < tokens; ++s)
      for (int64_t i = 0; i < inner; ++i)
        rows[static_cast<size_t>((s * outer + o) * inner + i)] = all[static_cast<size_t>((o * tokens + s) * inner + i)];
  return rows;
}

// A state [H, K, V] as doubles, and back to the order of the file.
class State {
 public:
  State(const Match& m, const std::vector<float>& stored) : m_(m), h_(stored.begin(), stored.end()) {}
  double& at(int64_t head, int64_t key, int64_t value) { return h_[index(head, key, value)]; }
  const std::vector<double>& stored() const { return h_; }

 private:
  size_t index(int64_t head, int64_t key, int64_t value) const {
    return static_cast<size_t>(m_.columns_first ? (head * m_.values + value) * m_.keys + key
                                                : (head * m_.keys + key) * m_.values + value);
  }
  const Match& m_;
  std::vector<double> h_;
};

const float* row_of(const Numbers& n, const Rows& rows, int64_t token) {
  return n.at(rows.value).data() + token * rows.width;
}

// One head of one token; `known`: scratch of a column for each value.
void take_token(const Match& m, const Numbers& n, int64_t token, int64_t head, State* h, std::vector<double>* known) {
  const float* const k = row_of(n, m.k, token) + head * m.k_heads() / m.heads * m.keys;
  const float* const v = row_of(n, m.v, token) + head * m.values;
  known->assign(static_cast<size_t>(m.values), 0);
  for (int64_t i = 0; i < m.keys; ++i) {
    double factor = 1;
    if (m.decay.value != kNoValue) {
      const float* const g = row_of(n, m.decay, token);
      factor = std::exp(static_cast<double>(m.decay.width == m.heads ? g[head] : g[head * m.keys + i]));
    }
    for (int64_t j = 0; j < m.values; ++j) {
      double& x = h->at(head, i, j);
      x *= factor;
      (*known)[static_cast<size_t>(j)] += x * k[i];
    }
  }
  const bool delta = m.beta.value != kNoValue;
  const double beta = delta ? row_of(n, m.beta, token)[m.beta.width == 1 ? 0 : head] : 1;
  for (int64_t i = 0; i < m.keys; ++i)
    for (int64_t j = 0; j < m.values; ++j)
      h->at(head, i, j) += k[i] * beta * (v[j] - (delta ? (*known)[static_cast<size_t>(j)] : 0));
}

// y of one token from the state behind it: h' q, without scale and skip.
std::vector<double> result_of(const Match& m, const float* q, State* h) {
  std::vector<double> y(static_cast<size_t>(m.results() * m.values));
  const int64_t groups = m.results() / m.heads;
  for (int64_t r = 0; r < m.results(); ++r) {
    const int64_t head = r / groups, q_head = m.q_heads() > m.heads ? r : head * m.q_heads() / m.heads;
    for (int64_t i = 0; i < m.keys; ++i)
      for (int64_t j = 0; j < m.values; ++j)
        y[static_cast<size_t>(r * m.values + j)] += h->at(head, i, j) * q[q_head * m.keys + i];
  }
  return y;
}

class Recogniser {
 public:
  explicit Recogniser(PassContext& context)
      : context_(context),
        graph_(context.graph),
        prober_(graph_, context.binding, context.evaluator),
        users_(graph_.users()) {}

  // Whether the recurrence of a state was found, and is one operator now.
  Result<bool> run(const StatePair& s) {
    if (!may_recur(s)) return false;
    state_ = s;
    find_dependent();
    for (const Rows& y : results()) {
      y_ = y;
      if (!find_region() || !find_steps()) continue;
      find_candidates();
      if (const std::optional<Match> m = find()) {
        SITU_RETURN_IF_ERROR(rewrite(*m));
        return true;
      }
    }
    return false;
  }

 private:
  const ValueInfo& info(ValueId v) const { return graph_.values[static_cast<size_t>(v)].info; }
  int producer(ValueId v) const { return graph_.values[static_cast<size_t>(v)].producer; }
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }

  // A matrix for each head, which something computes anew.
  bool may_recur(const StatePair& s) const {
    if (s.rule != StateRule::kReplace || s.past == kNoValue || s.present == kNoValue || producer(s.present) < 0 ||
        graph_.is_output(s.past))
      return false;
    const ValueInfo& past = info(s.past);
    return past.type == DType::kF32 && past.shape.size() == 4 && past.shape[0] == Dim(1) &&
           shape_is_const(past.shape) && node(producer(s.present)).domain.empty() &&
           node(producer(s.present)).out.size() == 1;
  }

  std::optional<Rows> rows_of(ValueId v) const {
    if (v == kNoValue || prober_.known(v) || !info(v).ranked || info(v).type != DType::kF32) return std::nullopt;
    Rows rows{v, -1, 1};
    for (size_t a = 0; a < info(v).shape.size(); ++a) {
      const Dim& d = info(v).shape[a];
      if (d == Dim::symbol(kSymS) && rows.axis < 0)
        rows.axis = static_cast<int>(a);
      else if (!d.is_const())
        return std::nullopt;
      else
        rows.width *= d.value();
    }
    return rows.axis < 0 ? std::nullopt : std::optional(rows);
  }

  // All that the state before the step is in.
  void find_dependent() {
    dependent_.assign(graph_.values.size(), 0);
    dependent_[static_cast<size_t>(state_.past)] = 1;
    for (const Node& n : graph_.nodes)
      if (std::any_of(n.in.begin(), n.in.end(),
                      [&](ValueId v) { return v != kNoValue && dependent_[static_cast<size_t>(v)]; }))
        for (const ValueId v : n.out)
          if (v != kNoValue && !prober_.known(v)) dependent_[static_cast<size_t>(v)] = 1;
  }

  // Values with rows that all else reads the past through, but for the state behind the step; nearest first.
  std::vector<Rows> results() const {
    const Shape& past = info(state_.past).shape;
    std::vector<Rows> found;
    size_t looked_at = 0;
    for (const Node& n : graph_.nodes) {
      if (n.out.size() != 1 || n.out[0] == kNoValue || !dependent_[static_cast<size_t>(n.out[0])]) continue;
      if (++looked_at > kMostNodes || found.size() >= kMostResults) break;
      const std::optional<Rows> y = rows_of(n.out[0]);
      const int64_t heads = past[1].value();
      if (y && n.out[0] != state_.present &&
          (y->width % (heads * past[2].value()) == 0 || y->width % (heads * past[3].value()) == 0) &&
          dominates(n.out[0]))
        found.push_back(*y);
    }
    return found;
  }

  bool dominates(ValueId y) const {
    std::set<ValueId> seen{state_.past};
    std::vector<ValueId> open{state_.past};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (v != state_.present && graph_.is_output(v)) return false;
      for (const auto& [u, operand] : users_[static_cast<size_t>(v)]) {
        if (u < 0) continue;
        for (const ValueId x : node(u).out)
          if (x != kNoValue && x != y && !prober_.known(x) && seen.insert(x).second) open.push_back(x);
      }
      if (seen.size() > 2 * kMostNodes) return false;
    }
    return true;
  }

  // What makes rows of other rows: what stands before it is none of the recurrence's business.
  bool is_source(const Node& n) const {
    static const std::set<std::string> kSources{
        "Conv", "Gemm", "Softmax", "LayerNormalization", "RMSNormalization", "MatMulInteger", "DynamicQuantizeLinear"};
    if (!n.domain.empty() || kSources.count(n.op)) return true;
    if (n.is("Gather")) return prober_.fixed(n.in[0]);
    return n.is("MatMul") && (prober_.fixed(n.in[0]) || prober_.fixed(n.in[1]));
  }

  bool find_region() {
    region_.clear();
    leaves_.clear();
    std::vector<ValueId> open{y_.value, state_.present};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || v == state_.past || prober_.known(v) || prober_.fixed(v)) continue;
      const int p = producer(v);
      if (p < 0 || is_source(node(p))) {
        if (!info(v).ranked || info(v).type != DType::kF32) return false;
        leaves_.insert(v);
        continue;
      }
      if (dependent_[static_cast<size_t>(v)] == 0 && !node(p).def) return false;
      if (!region_.insert(p).second) continue;
      if (region_.size() > kMostNodes) return false;
      for (const ValueId x : node(p).in) open.push_back(x);
    }
    return !leaves_.empty() &&
           std::none_of(leaves_.begin(), leaves_.end(), [&](ValueId v) { return dependent_[static_cast<size_t>(v)]; });
  }

  // Lengths of steps that tell all others: on both sides of what lengths are compared with, of the chunks that tokens
  // are cut into, and of as many chunks.
  bool find_steps() {
    std::set<int64_t> lengths{1, 2, 5, 13};
    std::vector<int64_t> chunks;
    const auto look_at = [&](const std::vector<Dim>& dims) {
      for (const Dim& d : dims) {
        std::vector<int64_t> numbers;
        if (!d.is_const() && !d.piecewise_linear(&numbers)) chunks.insert(chunks.end(), numbers.begin(), numbers.end());
      }
    };
    std::vector<ValueId> rules;
    for (const int i : region_) {
      for (const ValueId v : node(i).out)
        if (v != kNoValue && info(v).ranked) look_at(info(v).shape);
      for (const ValueId v : node(i).in) {
        if (!prober_.changes(v)) continue;
        if (info(v).content)
          look_at(*info(v).content);
        else
          rules.push_back(v);
      }
    }
    const auto around = [&](int64_t n) {
      for (const int64_t length : {n - 1, n, n + 1})
        if (length > 0) lengths.insert(length);
      return n < kMostTokens;
    };
    const TurningPoints points = rules.empty() ? TurningPoints{} : turning_points(graph_, prober_, rules);
    if (points.anywhere || (!points.plain && chunks.empty())) return false;
    for (const int64_t t : points.at)
      if (!around(t)) return false;
    for (const int64_t c : chunks) {
      if (c < 2 || 2 * c >= kMostTokens) continue;
      for (const int64_t n : {1, 2}) around(n * c);
      for (const int64_t t : points.at)
        if (t * c < kMostTokens) around(t * c);
    }
    steps_.assign(lengths.begin(), lengths.end());
    return true;
  }

  // Rows that the past is not in, in the order in which they are made.
  void find_candidates() {
    candidates_.clear();
    std::set<ValueId> seen;
    const auto add = [&](ValueId v) {
      const std::optional<Rows> rows = rows_of(v);
      if (rows && !dependent_[static_cast<size_t>(v)] && seen.insert(v).second) candidates_.push_back(*rows);
    };
    for (const ValueId v : leaves_) add(v);
    for (const int i : region_)
      for (const ValueId v : node(i).out) add(v);
  }

  // All rows, the state and the result of a step of random numbers; nothing: it cannot be evaluated.
  std::optional<Numbers> evaluate(int64_t tokens, uint32_t seed) {
    constexpr int64_t kPast = 3;
    std::map<ValueId, Tensor> given;
    for (const ValueId v : leaves_) given[v] = prober_.random(prober_.dims(v, tokens, kPast), seed++);
    given[state_.past] = prober_.random(prober_.dims(state_.past, tokens, kPast), seed++);
    std::vector<ValueId> roots{state_.present, y_.value};
    for (const Rows& r : candidates_) roots.push_back(r.value);
    const Result<std::vector<Tensor>> made = prober_.evaluate(roots, given, tokens, kPast);
    if (!made.is_ok()) return std::nullopt;
    Numbers n;
    n[state_.past] = floats(given[state_.past]);
    n[state_.present] = floats((*made)[0]);
    n[y_.value] = by_token((*made)[1], y_.axis);
    for (size_t i = 0; i < candidates_.size(); ++i)
      n[candidates_[i].value] = by_token((*made)[i + 2], candidates_[i].axis);
    return n;
  }

  std::optional<Match> find() {
    ones_.clear();
    for (const uint32_t seed : {1u, 101u}) {
      std::optional<Numbers> n = evaluate(1, seed);
      if (!n) return std::nullopt;
      ones_.push_back(std::move(*n));
    }
    if (!leave_out_same()) return std::nullopt;
    const Shape& past = info(state_.past).shape;
    for (const bool delta : {false, true})
      for (const bool columns_first : {false, true}) {
        Match m;
        m.columns_first = columns_first;
        m.heads = past[1].value();
        m.keys = past[columns_first ? 3 : 2].value();
        m.values = past[columns_first ? 2 : 3].value();
        if (m.keys > kMostLinearKeys) continue;
        if (find_state(delta, &m)) return m;
      }
    return std::nullopt;
  }

  // Of rows in several orders of axes the first ones are enough.
  bool leave_out_same() {
    const std::optional<Numbers> n = evaluate(3, 201);
    if (!n) return false;
    std::vector<Rows> others;
    for (const Rows& r : candidates_)
      if (std::none_of(others.begin(), others.end(),
                       [&](const Rows& o) { return o.width == r.width && n->at(o.value) == n->at(r.value); }))
        others.push_back(r);
    candidates_ = std::move(others);
    return true;
  }

  using Use = std::function<bool()>;
  // Each of the candidates of these widths in turn, until one serves.
  bool any_of(Rows* to, const std::function<bool(int64_t)>& fits, const Use& use) const {
    for (const Rows& r : candidates_) {
      if (!fits(r.width)) continue;
      *to = r;
      if (use()) return true;
    }
    *to = Rows{};
    return false;
  }

  bool find_state(bool delta, Match* m) {
    const auto heads_of = [m](int64_t width) { return width % m->keys == 0 && m->heads % (width / m->keys) == 0; };
    const auto all = [m](int64_t width) { return width == m->heads || width == m->heads * m->keys; };
    const Use keys = [&] {
      return any_of(&m->k, heads_of, [&] {
        return any_of(
            &m->v, [m](int64_t width) { return width == m->heads * m->values; },
            [&] { return makes_state(*m) && find_result(m); });
      });
    };
    const Use decays = [&] { return keys() || any_of(&m->decay, all, keys); };
    if (!delta) return decays();
    return any_of(&m->beta, [m](int64_t width) { return width == 1 || width == m->heads; }, decays);
  }

  bool makes_state(const Match& m) const {
    std::vector<double> known;
    for (const Numbers& n : ones_) {
      const std::vector<float>& present = n.at(state_.present);
      State h(m, n.at(state_.past));
      const auto head_is = [&](int64_t head) {
        take_token(m, n, 0, head, &h, &known);
        State made(m, present);
        double worst = 0, largest = 1e-30;
        for (int64_t i = 0; i < m.keys; ++i)
          for (int64_t j = 0; j < m.values; ++j) {
            worst = std::max(worst, std::fabs(h.at(head, i, j) - made.at(head, i, j)));
            largest = std::max(largest, std::fabs(made.at(head, i, j)));
          }
        return worst <= kSame * largest;
      };
      for (int64_t head = 0; head < m.heads; ++head)
        if (!head_is(head)) return false;
    }
    return true;
  }

  bool find_result(Match* m) {
    return any_of(
        &m->q,
        [&](int64_t width) {
          if (width % m->keys != 0) return false;
          const int64_t heads = width / m->keys;
          return (heads % m->heads == 0 || m->heads % heads == 0) && y_.width == std::max(heads, m->heads) * m->values;
        },
        [&] {
          m->skipped = Rows{};
          m->scale = 1;
          return (is_scaled(m) || is_skipped(m)) && holds(*m);
        });
  }

  std::vector<double> unscaled(const Match& m, const Numbers& n) const {
    State h(m, n.at(state_.present));
    return result_of(m, row_of(n, m.q, 0), &h);
  }

  bool is_scaled(Match* m) const {
    double scale = 0;
    for (const Numbers& n : ones_) {
      std::vector<double> y = unscaled(*m, n);
      const std::vector<float>& got = n.at(y_.value);
      const size_t at = static_cast<size_t>(
          std::max_element(y.begin(), y.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); }) -
          y.begin());
      if (scale == 0) scale = got[at] / y[at];
      for (double& x : y) x *= scale;
      if (scale == 0 || !same(got, y)) return false;
    }
    m->scale = std::fabs(scale - 1) < kSame ? 1.0f : static_cast<float>(scale);
    return true;
  }

  // y - h' q is D times rows.
  bool is_skipped(Match* m) const {
    if (m->results() != m->heads) return false;
    return any_of(
        &m->skipped, [m](int64_t width) { return width == m->heads * m->values; },
        [&] {
          m->factors.assign(static_cast<size_t>(m->heads), 0);
          for (size_t i = 0; i < ones_.size(); ++i) {
            const std::vector<float>& got = ones_[i].at(y_.value);
            std::vector<double> y = unscaled(*m, ones_[i]);
            const float* const w = row_of(ones_[i], m->skipped, 0);
            for (int64_t head = 0; head < m->heads; ++head) {
              float& factor = m->factors[static_cast<size_t>(head)];
              const int64_t first = head * m->values;
              const int64_t at = std::max_element(w + first, w + first + m->values,
                                                  [](float a, float b) { return std::fabs(a) < std::fabs(b); }) -
                                 w;
              if (i == 0)
                factor = static_cast<float>((got[static_cast<size_t>(at)] - y[static_cast<size_t>(at)]) / w[at]);
              for (int64_t j = first; j < first + m->values; ++j) y[static_cast<size_t>(j)] += factor * w[j];
            }
            if (!same(got, y)) return false;
          }
          return true;
        });
  }

  bool holds(const Match& m) {
    for (const int64_t tokens : steps_) {
      const std::optional<Numbers> n = evaluate(tokens, 1000 + static_cast<uint32_t>(tokens));
      if (!n) return false;
      State h(m, n->at(state_.past));
      std::vector<double> y, known;
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t head = 0; head < m.heads; ++head) take_token(m, *n, t, head, &h, &known);
        std::vector<double> row = result_of(m, row_of(*n, m.q, t), &h);
        for (size_t j = 0; j < row.size(); ++j) {
          row[j] *= m.scale;
          if (m.skipped.value != kNoValue)
            row[j] += m.factors[j / static_cast<size_t>(m.values)] * row_of(*n, m.skipped, t)[j];
        }
        y.insert(y.end(), row.begin(), row.end());
      }
      if (!same(n->at(y_.value), y) || !same(n->at(state_.present), h.stored())) return false;
    }
    return true;
  }

  // -- the operator

  // [1, S, width]
  ValueId rows(Builder& b, const Rows& r) const {
    if (r.value == kNoValue) return kNoValue;
    const Shape& shape = info(r.value).shape;
    ValueId v = r.value;
    bool first = true;  // of what has more than one place
    for (int a = 0; a < r.axis; ++a) first = first && shape[static_cast<size_t>(a)] == Dim(1);
    if (!first) {
      std::vector<int64_t> perm{r.axis};
      for (int64_t a = 0; a < static_cast<int64_t>(shape.size()); ++a)
        if (a != r.axis) perm.push_back(a);
      v = b.transpose(v, perm);
    } else if (shape == Shape{Dim(1), Dim::symbol(kSymS), Dim(r.width)}) {
      return v;
    }
    return b.reshape(v, {1, -1, r.width});
  }

  // The rows x as y has them.
  void give_result(Builder& b, ValueId x) const {
    const Shape& shape = info(y_.value).shape;
    std::vector<int64_t> dims, perm;
    bool first = true;
    for (int a = 0; a < y_.axis; ++a) first = first && shape[static_cast<size_t>(a)] == Dim(1);
    if (first) {
      for (const Dim& d : shape) dims.push_back(d.is_const() ? d.value() : -1);
      b.reshape(x, dims, y_.value);
      return;
    }
    dims.push_back(-1);
    for (int64_t a = 0; a < static_cast<int64_t>(shape.size()); ++a) {
      perm.push_back(a < y_.axis ? a + 1 : a == y_.axis ? 0 : a);
      if (a != y_.axis) dims.push_back(shape[static_cast<size_t>(a)].value());
    }
    b.transpose(b.reshape(x, dims), perm, y_.value);
  }

  ValueId skip(Builder& b, ValueId x, const Match& m) {
    Tensor factors = Tensor::allocate(DType::kF32, {m.heads * m.values});
    for (int64_t i = 0; i < factors.count(); ++i)
      factors.view().as<float>()[i] = m.factors[static_cast<size_t>(i / m.values)];
    const ValueId d = graph_.add_constant(graph_.values[static_cast<size_t>(y_.value)].name + "/skip", factors);
    return b.op("Add", {x, b.op("Mul", {rows(b, m.skipped), d})});
  }

  Status rewrite(const Match& m) {
    const std::vector<Node> nodes = graph_.nodes;
    const int at = producer(y_.value), of_state = producer(state_.present);
    context_.note("linear attention", nodes[static_cast<size_t>(at)].name,
                  std::string(m.beta.value != kNoValue ? "delta, " : "") + std::to_string(m.heads) + " states of " +
                      std::to_string(m.keys) + " keys, written out");
    Builder b(graph_);
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      if (i == at) {
        b.start(nodes[static_cast<size_t>(i)]);
        std::vector<ValueId> in{rows(b, m.q), rows(b, m.k), rows(b, m.v), state_.past, rows(b, m.decay)};
        if (m.beta.value != kNoValue) in.push_back(rows(b, m.beta));
        ValueId y = b.op("LinearAttention", in, kNoValue, "situ");
        b.last().set_int("q_heads", m.q_heads());
        b.last().set_int("v_heads", m.heads);
        b.last().set_int("columns_first", m.columns_first);
        b.last().set_float("scale", m.scale);
        b.last().out.push_back(state_.present);
        if (m.skipped.value != kNoValue) y = skip(b, y, m);
        give_result(b, y);
      } else if (i != of_state) {
        b.keep(nodes[static_cast<size_t>(i)]);
      }
    }
    SITU_RETURN_IF_ERROR(b.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  const std::vector<std::vector<std::pair<int, int>>> users_;  // Graph::users
  StatePair state_;
  Rows y_;
  std::vector<char> dependent_;  // by value: what the past is in
  std::set<int> region_;         // nodes between leaves, past and results
  std::set<ValueId> leaves_;
  std::vector<int64_t> steps_;
  std::vector<Rows> candidates_;
  std::vector<Numbers> ones_;  // steps of one token
};

}  // namespace

Status recognise_recurrence(PassContext& context) {
  if (context.phase != Phase::kAny || context.encoder) return Status::ok();
  const std::vector<StatePair> states = context.binding.states;
  for (const StatePair& s : states) {
    const Result<bool> found = Recogniser(context).run(s);
    if (!found.is_ok()) return found.status();
    if (*found) SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  return Status::ok();
}

}  // namespace situ
