#include "passes/recognise/recurrence.h"

#include <cmath>

#include "passes/host/probe.h"

namespace situ {

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

const float* row_of(const TokenNumbers& n, const TokenRows& rows, int64_t token) {
  static constexpr float kOne = 1;
  return rows.value == kNoValue ? &kOne : n.at(rows.value).data() + token * rows.width;
}

double decay_of(const Recurrence& m, const TokenNumbers& n, int64_t token, int64_t head, int64_t key) {
  if (m.decay.value == kNoValue) return 1;
  const float* const g = row_of(n, m.decay, token);
  return std::exp(static_cast<double>(m.decay.width == m.heads ? g[head] : g[head * m.keys + key]));
}

void take_token(const Recurrence& m, const TokenNumbers& n, int64_t token, int64_t head, RecurrentState* h,
                std::vector<double>* known) {
  const float* const k = row_of(n, m.k, token) + head * m.k_heads() / m.heads * m.keys;
  const float* const v = row_of(n, m.v, token) + head * m.values;
  known->assign(static_cast<size_t>(m.values), 0);
  for (int64_t i = 0; i < m.keys; ++i) {
    const double factor = decay_of(m, n, token, head, i);
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

std::vector<double> result_of(const Recurrence& m, const float* q, RecurrentState* h) {
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

}  // namespace situ
