#include "cli/closest.h"

#include <algorithm>
#include <vector>

namespace situ::cli {
namespace {

// Letters to add, leave out, replace or swap with their neighbour (optimal string alignment).
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string closest(const std::string& word, std::span<const std::string> known) {
  constexpr size_t kLongest = 64;  // names are shorter, and texts are no names
  if (word.empty() || word.size() > kLongest) return "";
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& other : known)
    if (const size_t found = distance(word, other); found < least) {
      least = found;
      best = other;
    }
  return best;
}

std::string did_you_mean(const std::string& word, std::span<const std::string> known) {
  const std::string best = closest(word, known);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

}  // namespace situ::cli
