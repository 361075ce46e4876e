// argmax against a plain loop: every length around its blocks, ties, infinities, what is not a number.
#include "generate/greedy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace situ {
namespace {

int64_t plain(const std::vector<float>& x) {
  int64_t best = -1;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] == x[i] && (best < 0 || x[i] > x[static_cast<size_t>(best)])) best = static_cast<int64_t>(i);
  return best;
}

TEST(Argmax, Is_the_first_of_the_largest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(1);
  for (size_t size = 1; size < 400; ++size)
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<float> x(size);
      for (float& v : x) {
        v = static_cast<float>(static_cast<int>(random() % (kind == 0 ? 3 : 100000)) - 50000);
        if ((kind == 2 && random() % 2) || (kind == 1 && random() % 300 == 0)) v = kNan;
        if (kind == 3 && random() % 3) v = -kInfinity;
        if (kind == 4 && random() % 50 == 0) v = kInfinity;
        if (kind == 5) v = static_cast<float>(&v - x.data());  // every one larger than those before
      }
      if (kind == 2) x[0] = kNan;
      const int64_t want = plain(x), got = argmax(x);
      EXPECT_TRUE(want >= 0 ? got == want : got >= 0 && got < static_cast<int64_t>(size))
          << size << " of kind " << kind << ": " << got << " for " << want;
      const auto none = std::find_if(x.begin(), x.end(), [](float v) { return v != v; });
      EXPECT_EQ(largest_logit(x).not_a_number, none == x.end() ? -1 : none - x.begin()) << size << " of kind " << kind;
    }
}

}  // namespace
}  // namespace situ
