// A recurrence that is written out for all tokens of a step becomes one operator, which takes them one by one:
//   h_t = exp(g_t) h_(t-1) + k_t v_t'      or, with the delta rule, + k_t (beta_t (v_t - (exp(g_t) h_(t-1))' k_t))'
//   y_t = scale h_t' q_t                   or h_t' q_t + D v_t, D a number for each head
//     -> y, h_S = situ.LinearAttention(q, k, v, h_0, g, beta)        h [1, H, K, V] or [1, H, V, K]
// Mamba-2's scan is one: q = C, k = B, v = dt x, g = A dt. So are those of other shapes that count alike: with a number
// for each channel, h_t = exp(g_t) h_(t-1) + v_t, each is a head of one key, and Mamba-1's channels are heads of as
// many keys as a channel has numbers. A state of half precision is kept in float. How it is written (sums of decays, a
// mask, chunks that are padded and joined again) makes no difference: what the graph between projections and results
// computes is evaluated on random numbers, for one token to find q, k, v, g and beta among its values, and for several
// to see that they are them. In a graph of single tokens every value of known extents may be a token's row.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "kernels/params.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/follows_past.h"
#include "passes/host/infer.h"
#include "passes/host/probe.h"
#include "passes/host/turning_points.h"
#include "passes/recognise/passes.h"
#include "passes/recognise/recurrence.h"

namespace situ {
namespace {

constexpr size_t kMostNodes = 4096;  // between projections and results: 64 tokens of a chunk written out one by one
constexpr size_t kMostResults = 8;   // values that may be y, of those that are looked at
constexpr size_t kMostLookedAt = 64;
constexpr int64_t kMostTokens = 640;                 // of a probed step
constexpr int64_t kMostCompared = int64_t{1} << 31;  // numbers of states, of all candidates for a recurrence together
constexpr int64_t kPast = 3;    // tokens that precede it, where the region does not ask how many do
constexpr double kSame = 1e-4;  // sums in another order; other operands differ by far more

// Largest difference, as a part of the largest number, is small enough.
bool same(const std::vector<float>& got, const std::vector<double>& want) {
  double largest = 1e-30;
  for (const double x : want) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - want[i]) <= kSame * largest)) return false;
  return got.size() == want.size();
}

class Recogniser {
 public:
  Recogniser(PassContext& context, int64_t* compared)
      : context_(context),
        graph_(context.graph),
        prober_(graph_, context.binding, context.evaluator),
        users_(graph_.users()),
        follows_past_(graph_),
        compared_(*compared) {}

  // Whether the recurrence of a state was found, and is one operator now.
  Result<bool> run(const StatePair& s) {
    if (!may_recur(s)) return false;
    state_ = s;
    past_ = as_float(s.past);
    present_ = as_float(s.present);
    find_layouts();
    find_dependent();
    // Numbers that are heads of their own would be rows as wide as the state: only where nothing narrower is one.
    const std::vector<RecurrenceLayout> all = std::exchange(layouts_, {});
    for (const bool single : {false, true}) {
      for (const RecurrenceLayout& l : all)
        if ((l.keys * l.values == 1) == single) layouts_.push_back(l);
      for (const TokenRows& y : results()) {
        y_ = y;
        if (!find_region() || !find_steps()) continue;
        find_candidates();
        if (const std::optional<Recurrence> m = find()) {
          SITU_RETURN_IF_ERROR(rewrite(*m));
          return true;
        }
      }
      layouts_.clear();
    }
    return false;
  }

 private:
  const ValueInfo& info(ValueId v) const { return graph_.values[static_cast<size_t>(v)].info; }
  int producer(ValueId v) const { return graph_.values[static_cast<size_t>(v)].producer; }
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }

  bool one_token() const { return context_.phase == Phase::kDecode; }
  Dim tokens() const { return one_token() ? Dim(1) : Dim::symbol(kSymS); }
  std::vector<float> rows_in(const Tensor& t, int axis) const { return one_token() ? floats(t) : by_token(t, axis); }

  // Numbers that something computes anew.
  bool may_recur(const StatePair& s) const {
    if (s.rule != StateRule::kReplace || s.past == kNoValue || s.present == kNoValue || producer(s.present) < 0 ||
        graph_.is_output(s.past))
      return false;
    const ValueInfo& past = info(s.past);
    // A first call that is compiled apart has the state as the file does.
    if (one_token() && past.type != DType::kF32) return false;
    const ValueId made = as_float(s.present);
    return info(as_float(s.past)).type == DType::kF32 && info(made).type == DType::kF32 && past.shape.size() >= 2 &&
           past.shape.size() <= 4 && past.shape[0] == Dim(1) && shape_is_const(past.shape) && producer(made) >= 0 &&
           node(producer(made)).domain.empty() && node(producer(made)).out.size() == 1;
  }

  // What a state of half precision is cast to, or from: all that reads it, or that it is made of.
  ValueId as_float(ValueId v) const {
    if (info(v).type == DType::kF32) return v;
    if (const int p = producer(v); p >= 0) return node(p).is("Cast") ? node(p).in[0] : v;
    ValueId wide = v;
    for (const auto& [u, operand] : users_[static_cast<size_t>(v)]) {
      if (u >= 0 && node(u).is("Shape")) continue;
      if (u < 0 || !node(u).is("Cast") || wide != v) return v;
      wide = node(u).out[0];
    }
    return wide;
  }

  // Heads, keys and values that the axes of the state may be, the usual ones first.
  void find_layouts() {
    layouts_.clear();
    const Shape& past = info(state_.past).shape;
    int64_t dims[3] = {1, 1, 1};
    for (size_t a = 1; a < past.size(); ++a) dims[3 - past.size() + a] = past[a].value();
    const auto [a, b, c] = dims;
    for (const RecurrenceLayout& l :
         {RecurrenceLayout{a, b, c}, RecurrenceLayout{a, c, b, true}, RecurrenceLayout{a * b, c, 1},
          RecurrenceLayout{a * b, 1, c}, RecurrenceLayout{a * b * c, 1, 1}}) {
      const bool known = std::any_of(layouts_.begin(), layouts_.end(), [&](const RecurrenceLayout& o) {
        return o.heads == l.heads && o.keys == l.keys && o.values == l.values &&
               (o.columns_first == l.columns_first || l.keys == 1 || l.values == 1);
      });
      if (l.keys <= kMostLinearKeys && !known) layouts_.push_back(l);
    }
  }

  std::optional<TokenRows> rows_of(ValueId v) const {
    if (v == kNoValue || prober_.known(v) || !info(v).ranked || info(v).type != DType::kF32) return std::nullopt;
    TokenRows rows{v, one_token() ? 0 : -1, 1};
    for (size_t a = 0; a < info(v).shape.size(); ++a) {
      const Dim& d = info(v).shape[a];
      if (d == tokens() && rows.axis < 0)
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
    dependent_[static_cast<size_t>(past_)] = 1;
    for (const Node& n : graph_.nodes)
      if (std::any_of(n.in.begin(), n.in.end(),
                      [&](ValueId v) { return v != kNoValue && dependent_[static_cast<size_t>(v)]; }))
        for (const ValueId v : n.out)
          if (v != kNoValue && !prober_.known(v)) dependent_[static_cast<size_t>(v)] = 1;
  }

  // Values with rows that all else reads the past through, but for the state behind the step; nearest first.
  std::vector<TokenRows> results() const {
    std::vector<TokenRows> found;
    size_t looked_at = 0;
    for (const Node& n : graph_.nodes) {
      if (n.out.size() != 1 || n.out[0] == kNoValue || !dependent_[static_cast<size_t>(n.out[0])]) continue;
      if (++looked_at > kMostNodes || found.size() >= (one_token() ? kMostLookedAt : kMostResults)) break;
      const std::optional<TokenRows> y = rows_of(n.out[0]);
      if (y && n.out[0] != present_ &&
          std::any_of(layouts_.begin(), layouts_.end(), [&](const RecurrenceLayout& l) { return may_result(*y, l); }) &&
          dominates(n.out[0]) && !only_on_the_way(n.out[0]))
        found.push_back(*y);
    }
    if (one_token())
      std::stable_sort(found.begin(), found.end(),
                       [](const TokenRows& a, const TokenRows& b) { return a.width < b.width; });
    if (found.size() > kMostResults) found.resize(kMostResults);
    return found;
  }

  // Whether the state behind the step is made of y, and read instead of it.
  bool only_on_the_way(ValueId y) const {
    std::set<ValueId> seen{y};
    std::vector<ValueId> open{y};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (v == present_) {
        const auto& users = users_[static_cast<size_t>(state_.present)];
        return one_token() || std::any_of(users.begin(), users.end(), [](const auto& u) { return u.first >= 0; });
      }
      for (const auto& [u, operand] : users_[static_cast<size_t>(v)]) {
        if (u < 0) continue;
        for (const ValueId x : node(u).out)
          if (x != kNoValue && dependent_[static_cast<size_t>(x)] && seen.insert(x).second) open.push_back(x);
      }
      if (seen.size() > kMostNodes) break;
    }
    return false;
  }

  // Of one token, whatever is padded or joined with the state has a width that heads divide.
  bool may_result(const TokenRows& y, const RecurrenceLayout& l) const {
    const int64_t width = l.heads * l.values;
    return one_token() ? y.width == width : y.width % width == 0;
  }

  bool dominates(ValueId y) const {
    std::set<ValueId> seen{past_};
    std::vector<ValueId> open{past_};
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
    std::vector<ValueId> open{y_.value, present_};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || v == past_ || prober_.known(v) || prober_.fixed(v)) continue;
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
    steps_.clear();
    if (one_token()) return find_one_step();
    std::set<int64_t> lengths{1, 2, 5, 13};
    std::vector<int64_t> chunks;
    const auto look_at = [&](const std::vector<Dim>& dims) {
      for (const Dim& d : dims) {
        std::vector<int64_t> numbers;
        if (!d.is_const() && !d.piecewise_linear(&numbers)) chunks.insert(chunks.end(), numbers.begin(), numbers.end());
      }
    };
    std::vector<ValueId> rules, of_past;
    for (const int i : region_) {
      for (const ValueId v : node(i).out)
        if (v != kNoValue && info(v).ranked) look_at(info(v).shape);
      for (const ValueId v : node(i).in) {
        if (!prober_.changes(v)) continue;
        if (follows_past_(v)) of_past.push_back(v);
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
    for (const int64_t length : lengths) steps_.emplace_back(length, kPast);
    if (of_past.empty()) return true;
    const TellingSteps telling =
        telling_steps(graph_, prober_, of_past, context_.phase, context_.context_length, Judged::kByValue, kMostTokens);
    steps_.insert(steps_.end(), telling.steps.begin(), telling.steps.end());
    return telling.told;
  }

  // One token is the only step where nothing follows from how many precede it.
  bool find_one_step() {
    for (const int i : region_)
      for (const ValueId v : node(i).in)
        if (prober_.changes(v)) return false;
    steps_ = {{1, kPast}};
    return true;
  }

  // Rows that the past is not in, in the order in which they are made.
  void find_candidates() {
    candidates_.clear();
    std::set<ValueId> seen;
    const auto add = [&](ValueId v) {
      const std::optional<TokenRows> rows = rows_of(v);
      if (rows && !dependent_[static_cast<size_t>(v)] && seen.insert(v).second) candidates_.push_back(*rows);
    };
    for (const ValueId v : leaves_) add(v);
    for (const int i : region_)
      for (const ValueId v : node(i).out) add(v);
  }

  // All rows, the state and the result of a step of random numbers; nothing: it cannot be evaluated.
  std::optional<TokenNumbers> evaluate(int64_t tokens, uint32_t seed, int64_t past = kPast) {
    std::map<ValueId, Tensor> given;
    for (const ValueId v : leaves_) given[v] = prober_.random(prober_.dims(v, tokens, past), seed++);
    given[past_] = prober_.random(prober_.dims(past_, tokens, past), seed++);
    std::vector<ValueId> roots{present_, y_.value};
    for (const TokenRows& r : candidates_) roots.push_back(r.value);
    const Result<std::vector<Tensor>> made = prober_.evaluate(roots, given, tokens, past);
    if (!made.is_ok()) return std::nullopt;
    TokenNumbers n;
    n[past_] = floats(given[past_]);
    n[present_] = floats((*made)[0]);
    n[y_.value] = rows_in((*made)[1], y_.axis);
    for (size_t i = 0; i < candidates_.size(); ++i)
      n[candidates_[i].value] = rows_in((*made)[i + 2], candidates_[i].axis);
    return n;
  }

  std::optional<Recurrence> find() {
    ones_.clear();
    for (const uint32_t seed : {1u, 101u}) {
      std::optional<TokenNumbers> n = evaluate(1, seed);
      if (!n) return std::nullopt;
      ones_.push_back(std::move(*n));
    }
    largest_.clear();
    for (const TokenNumbers& n : ones_) {
      double& largest = largest_.emplace(&n, 1e-30).first->second;
      for (const float x : n.at(present_)) largest = std::max(largest, static_cast<double>(std::fabs(x)));
    }
    if (!leave_out_same()) return std::nullopt;
    for (const bool delta : {false, true})
      for (const RecurrenceLayout& layout : layouts_) {
        Recurrence m;
        static_cast<RecurrenceLayout&>(m) = layout;
        if (find_state(delta, &m)) return m;
      }
    return std::nullopt;
  }

  // Of rows in several orders of axes the first ones are enough.
  bool leave_out_same() {
    const std::optional<TokenNumbers> n = evaluate(one_token() ? 1 : 3, 201);
    if (!n) return false;
    std::vector<TokenRows> others;
    for (const TokenRows& r : candidates_)
      if (std::none_of(others.begin(), others.end(),
                       [&](const TokenRows& o) { return o.width == r.width && n->at(o.value) == n->at(r.value); }))
        others.push_back(r);
    candidates_ = std::move(others);
    return true;
  }

  using Use = std::function<bool()>;
  // Each of the candidates of these widths in turn, until one serves.
  bool any_of(TokenRows* to, const std::function<bool(int64_t)>& fits, const Use& use) const {
    for (const TokenRows& r : candidates_) {
      if (!fits(r.width)) continue;
      *to = r;
      if (use()) return true;
    }
    *to = TokenRows{};
    return false;
  }

  bool find_state(bool delta, Recurrence* m) {
    const auto heads_of = [m](int64_t width) { return width % m->keys == 0 && m->heads % (width / m->keys) == 0; };
    const auto all = [m](int64_t width) { return width == m->heads || width == m->heads * m->keys; };
    const Use values = [&] {
      return any_of(
          &m->v, [m](int64_t width) { return width == m->heads * m->values; },
          [&] { return makes_state(*m) && find_result(m); });
    };
    const Use betas = [&] {
      return delta ? any_of(
                         &m->beta, [m](int64_t width) { return width == 1 || width == m->heads; }, values)
                   : values();
    };
    const Use keys = [&] {
      if (!adds_product(*m, nullptr)) return false;
      if (m->keys == 1) {
        m->k = kOnes;
        if (betas()) return true;
      }
      return any_of(&m->k, heads_of, [&] { return adds_product(*m, &m->k) && betas(); });
    };
    return keys() || any_of(&m->decay, all, keys);
  }

  // Whether the first head may be its decayed past and k times something, for a `k` or any: tells most candidates
  // before they are taken together.
  bool adds_product(const Recurrence& m, const TokenRows* k) const {
    for (const TokenNumbers& n : ones_) {
      RecurrentState past(m, n.at(past_), 0), added(m, n.at(present_), 0);
      std::pair<int64_t, int64_t> at{0, 0};
      for (int64_t i = 0; i < m.keys; ++i)
        for (int64_t j = 0; j < m.values; ++j) {
          added.at(0, i, j) -= decay_of(m, n, 0, 0, i) * past.at(0, i, j);
          if (std::fabs(added.at(0, i, j)) > std::fabs(added.at(0, at.first, at.second))) at = {i, j};
        }
      const double most = added.at(0, at.first, at.second);
      const float* const row = k != nullptr ? row_of(n, *k, 0) : nullptr;
      for (int64_t i = 0; i < m.keys && most != 0; ++i) {
        const double part =
            row != nullptr ? row[i] / static_cast<double>(row[at.first]) : added.at(0, i, at.second) / most;
        for (int64_t j = 0; j < m.values; ++j)
          if (!(std::fabs(added.at(0, i, j) - part * added.at(0, at.first, j)) <= 10 * kSame * largest_.at(&n)))
            return false;
      }
    }
    return true;
  }

  bool makes_state(const Recurrence& m) {
    if (compared_ > kMostCompared) return false;
    std::vector<double> known;
    for (const TokenNumbers& n : ones_) {
      const std::vector<float>& present = n.at(present_);
      const double largest = largest_.at(&n);
      const auto head_is = [&](int64_t head) {
        RecurrentState h(m, n.at(past_), head), made(m, present, head);
        compared_ += m.keys * m.values;
        take_token(m, n, 0, head, &h, &known);
        double worst = 0;
        for (int64_t i = 0; i < m.keys; ++i)
          for (int64_t j = 0; j < m.values; ++j)
            worst = std::max(worst, std::fabs(h.at(head, i, j) - made.at(head, i, j)));
        return worst <= kSame * largest;
      };
      for (int64_t head = 0; head < m.heads; ++head)
        if (!head_is(head)) return false;
    }
    return true;
  }

  bool find_result(Recurrence* m) {
    const Use gives = [&] {
      m->skipped = TokenRows{};
      m->scale = 1;
      return (is_scaled(m) || is_skipped(m)) && holds(*m);
    };
    m->q = kOnes;
    if (m->keys == 1 && y_.width == m->heads * m->values && gives()) return true;
    return any_of(
        &m->q,
        [&](int64_t width) {
          if (width % m->keys != 0) return false;
          const int64_t heads = width / m->keys;
          return (heads % m->heads == 0 || m->heads % heads == 0) && y_.width == std::max(heads, m->heads) * m->values;
        },
        gives);
  }

  std::vector<double> unscaled(const Recurrence& m, const TokenNumbers& n) const {
    RecurrentState h(m, n.at(present_));
    return result_of(m, row_of(n, m.q, 0), &h);
  }

  bool is_scaled(Recurrence* m) const {
    double scale = 0;
    for (const TokenNumbers& n : ones_) {
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
  bool is_skipped(Recurrence* m) const {
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

  bool holds(const Recurrence& m) {
    for (const auto& [tokens, past] : steps_) {
      const std::optional<TokenNumbers> n = evaluate(tokens, 1000 + static_cast<uint32_t>(tokens), past);
      if (!n) return false;
      RecurrentState h(m, n->at(past_));
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
      if (!same(n->at(y_.value), y) || !same(n->at(present_), h.stored())) return false;
    }
    return true;
  }

  // -- the operator

  // One for every token.
  ValueId ones(Builder& b) {
    Tensor t = Tensor::allocate(DType::kF32, {1, 1, 1});
    *t.view().as<float>() = 1;
    const std::string& name = graph_.values[static_cast<size_t>(y_.value)].name;
    const ValueId dims = graph_.add_shape(name + "/rows", {Dim(1), tokens(), Dim(1)});
    return b.op("Expand", {graph_.add_constant(name + "/one", t), dims});
  }

  // [1, S, width]
  ValueId rows(Builder& b, const TokenRows& r) {
    if (r.value == kNoValue) return r.width == 0 ? kNoValue : ones(b);
    const Shape& shape = info(r.value).shape;
    ValueId v = r.value;
    bool first = true;  // of what has more than one place
    for (int a = 0; a < r.axis; ++a) first = first && shape[static_cast<size_t>(a)] == Dim(1);
    if (!first) {
      std::vector<int64_t> perm{r.axis};
      for (int64_t a = 0; a < static_cast<int64_t>(shape.size()); ++a)
        if (a != r.axis) perm.push_back(a);
      v = b.transpose(v, perm);
    } else if (shape == Shape{Dim(1), tokens(), Dim(r.width)}) {
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

  ValueId skip(Builder& b, ValueId x, const Recurrence& m) {
    Tensor factors = Tensor::allocate(DType::kF32, {m.heads * m.values});
    for (int64_t i = 0; i < factors.count(); ++i)
      factors.view().as<float>()[i] = m.factors[static_cast<size_t>(i / m.values)];
    const ValueId d = graph_.add_constant(graph_.values[static_cast<size_t>(y_.value)].name + "/skip", factors);
    return b.op("Add", {x, b.op("Mul", {rows(b, m.skipped), d})});
  }

  // The state becomes what the operator has: float, [1, H, K, V] or [1, H, V, K]. What knows its shape keeps it.
  void retype_state(std::vector<Node>* nodes, const Recurrence& m) {
    for (Node& n : *nodes)
      for (ValueId& v : n.in) {
        const int p = v == kNoValue ? -1 : producer(v);
        if (p >= 0 && node(p).is("Shape") && node(p).in[0] == state_.past && info(v).content) {
          const Shape dims = *info(v).content;
          v = graph_.add_shape(graph_.values[static_cast<size_t>(v)].name + "/known", dims);
        }
      }
    for (const ValueId v : {state_.past, state_.present}) {
      ValueInfo& own = graph_.values[static_cast<size_t>(v)].info;
      own.type = DType::kF32;
      own.shape = {Dim(1), Dim(m.heads), Dim(m.columns_first ? m.values : m.keys),
                   Dim(m.columns_first ? m.keys : m.values)};
    }
    for (auto& [v, declared] : context_.declared_outputs)
      if (v == state_.present) declared = DType::kF32;
  }

  Status rewrite(const Recurrence& m) {
    std::vector<Node> nodes = graph_.nodes;
    const int at = producer(y_.value), of_state = producer(state_.present);
    retype_state(&nodes, m);
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
  ValueId past_ = kNoValue, present_ = kNoValue;  // of the state, in float
  std::vector<RecurrenceLayout> layouts_;
  TokenRows y_;
  std::vector<char> dependent_;  // by value: what the past is in
  std::set<int> region_;         // nodes between leaves, past and results
  std::set<ValueId> leaves_;
  std::vector<std::pair<int64_t, int64_t>> steps_;  // tokens, past
  std::vector<TokenRows> candidates_;
  std::vector<TokenNumbers> ones_;  // steps of one token
  FollowsPast follows_past_;
  std::map<const TokenNumbers*, double> largest_;  // number of the state behind each of these
  int64_t& compared_;                              // numbers of states that candidates made, of all layers
};

}  // namespace

Status recognise_recurrence(PassContext& context) {
  if (context.phase == Phase::kFirst || context.encoder) return Status::ok();
  const std::vector<StatePair> states = context.binding.states;
  std::optional<Recogniser> recogniser;  // of the graph as it is
  int64_t compared = 0;
  for (const StatePair& s : states) {
    if (!recogniser) recogniser.emplace(context, &compared);
    const Result<bool> found = recogniser->run(s);
    if (!found.is_ok()) return found.status();
    if (!*found) continue;
    recogniser.reset();
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  return Status::ok();
}

}  // namespace situ
