// sum_above, list_above and random_words against plain loops: all ISAs, all sizes around those of vectors and blocks.
#include <limits>

#include "kernels/strided_test.h"

namespace situ {
namespace {

template <typename T>
View row_of(const FencedBytes& bytes, DType type) {
  return row_view(bytes.data(), type, static_cast<int64_t>(bytes.size() / sizeof(T)));
}
template <typename T>
T& at(const FencedBytes& bytes, int64_t i) {
  return reinterpret_cast<T*>(bytes.data())[i];
}

TEST(Choose, sum_above_list_above) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (const int64_t n : {0, 1, 3, 15, 16, 17, 63, 64, 65, 130, 255, 1023, 4100, 5001})
      for (const double few : {0.0, 0.01, 0.6, 1.0}) {
        const size_t size = static_cast<size_t>(n);
        const FencedBytes x(size * sizeof(float)), y((size + kAboveSlack) * sizeof(uint32_t)), sum(sizeof(double)),
            count(sizeof(int64_t));
        const AboveParams params{0.25f};
        std::vector<uint32_t> want;
        double total = 0;
        for (int64_t i = 0; i < n; ++i) {
          const bool above = random_real(0, 1) < few;
          const float score = above ? static_cast<float>(random_real(0.26, 2)) : i % 3 == 0 ? 0.25f : -1.0f;
          at<float>(x, i) = score;
          if (above) want.push_back(static_cast<uint32_t>(i)), total += static_cast<double>(score);
        }
        const View in = row_of<float>(x, DType::kF32);
        run_kernel(table, &KernelTable::sum_above, {in}, row_of<double>(sum, DType::kF64), &params, threads);
        ASSERT_NEAR(at<double>(sum, 0), total, 1e-5 * total) << n;
        run_kernel(table, &KernelTable::list_above, {in},
                   std::vector<View>{row_of<uint32_t>(y, DType::kU32), row_of<int64_t>(count, DType::kI64)}, &params,
                   threads);
        ASSERT_EQ(at<int64_t>(count, 0), std::ssize(want)) << n;
        for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(at<uint32_t>(y, static_cast<int64_t>(i)), want[i]);
      }
  });
}

TEST(Choose, exp_terms) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (const int64_t n : {1, 15, 16, 17, 255, 256, 257, 1000}) {
      const FencedBytes x(static_cast<size_t>(n) * sizeof(float)), y(static_cast<size_t>(n) * sizeof(float)),
          sum(sizeof(float)), shares(static_cast<size_t>(n) * sizeof(float));
      ExpTermsParams params{0.7f, -100};
      for (int64_t i = 0; i < n; ++i) {
        at<float>(x, i) = static_cast<float>(random_real(-9, 9));
        params.largest = std::max(params.largest, at<float>(x, i));
      }
      run_kernel(table, &KernelTable::exp_terms, {row_of<float>(x, DType::kF32)},
                 std::vector<View>{row_of<float>(y, DType::kF32), row_of<float>(sum, DType::kF32)}, &params, threads);
      // To the bit what two kernels make of it.
      View temperature = row_view(&params.temperature, n);
      temperature.strides[0] = 0;
      const View row = row_of<float>(shares, DType::kF32);
      const BinaryParams division{BinaryKind::kDiv};
      run_kernel(table, &KernelTable::binary, {row_of<float>(x, DType::kF32), temperature}, row, &division, threads);
      const SoftmaxParams softmax{0, false, false};
      run_kernel(table, &KernelTable::softmax, {row}, row, &softmax, threads);
      const float inverse = 1 / at<float>(sum, 0);
      double total = 0;
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(at<float>(y, i) * inverse, at<float>(shares, i)) << n;
        ASSERT_NEAR(at<float>(y, i), std::exp((at<float>(x, i) - params.largest) / params.temperature), 1e-5);
        total += static_cast<double>(at<float>(y, i));
      }
      ASSERT_NEAR(at<float>(sum, 0), total, 1e-5 * total);
    }
  });
}

TEST(Choose, what_is_no_number_is_not_above) {
  for_each_isa([](const KernelTable& table, int threads) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::vector<float> x(70, std::numeric_limits<float>::quiet_NaN());
    x[3] = x[66] = kInfinity;
    x[4] = x[67] = -kInfinity;
    uint32_t y[70 + kAboveSlack] = {};
    int64_t count = 0;
    const AboveParams params{-kInfinity};
    run_kernel(table, &KernelTable::list_above, {row_view(x.data(), 70)},
               std::vector<View>{row_view(y, DType::kU32, 70 + kAboveSlack), row_view(&count, DType::kI64, 1)}, &params,
               threads);
    ASSERT_EQ(count, 2);
    ASSERT_EQ(y[0], 3u);
    ASSERT_EQ(y[1], 66u);
  });
}

// As the paper spells it.
uint32_t philox_word(uint32_t id, uint64_t seed, uint64_t position) {
  uint32_t c[4] = {id / 4, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0},
           k[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * c[0], second = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(second >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(second),
                              static_cast<uint32_t>(first >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(first)};
    std::copy(next, next + 4, c);
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c[id % 4];
}

TEST(Choose, random_words) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (const int64_t n : {0, 1, 2, 5, 16, 17, 63, 64, 65, 300})
      for (const int64_t step : {1, 2, 3, 40, 100000}) {
        const FencedBytes x(static_cast<size_t>(n) * sizeof(uint32_t)), y(static_cast<size_t>(n) * sizeof(uint32_t));
        uint32_t id = static_cast<uint32_t>(random_int(0, 5));
        for (int64_t i = 0; i < n; ++i) {
          at<uint32_t>(x, i) = id;
          id += static_cast<uint32_t>(random_int(1, step));
        }
        const RandomWordsParams params{static_cast<uint64_t>(random_int(0, INT64_MAX)),
                                       static_cast<uint64_t>(random_int(0, INT64_MAX))};
        run_kernel(table, &KernelTable::random_words, {row_of<uint32_t>(x, DType::kU32)},
                   row_of<uint32_t>(y, DType::kU32), &params, threads);
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(at<uint32_t>(y, i), philox_word(at<uint32_t>(x, i), params.seed, params.position)) << n;
      }
  });
}

}  // namespace
}  // namespace situ
