// Float matrices are laid out in the smallest type that holds each of their numbers, and in no smaller one.
#include "passes/pack/pack_store.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "kernels/params.h"

namespace situ {
namespace {

constexpr int64_t kStoredDepth = 70, kStoredColumns = 45;

class PackStoreTest : public testing::Test {
 protected:
  // The type that `numbers` [kStoredDepth, kStoredColumns] are laid out in; each is found again, to the bit.
  DType packed_type(const std::vector<float>& numbers, bool transposed = false) {
    std::vector<std::byte> memory(numbers.size() * 4 + 1);
    const Tensor w = Tensor::borrow(
        DType::kF32, {transposed ? kStoredColumns : kStoredDepth, transposed ? kStoredDepth : kStoredColumns},
        memory.data() + 1, std::make_shared<int>(0));
    for (size_t i = 0; i < numbers.size(); ++i)
      for (size_t b = 0; b < 4; ++b)
        memory[1 + 4 * i + b] = static_cast<std::byte>(std::bit_cast<uint32_t>(numbers[i]) >> 8 * b);
    const Result<Tensor> packed = PackStore(pool_).pack_dense(w, kStoredDepth, kStoredColumns, transposed);
    EXPECT_TRUE(packed.is_ok());
    const std::vector<double> found = packed->to_f64();
    for (int64_t k = 0; k < kStoredDepth; ++k)
      for (int64_t n = 0; n < kStoredColumns; ++n) {
        const double got = found[static_cast<size_t>((n / kDensePanelColumns * kStoredDepth + k) * kDensePanelColumns +
                                                     n % kDensePanelColumns)];
        const double want = numbers[static_cast<size_t>(transposed ? n * kStoredDepth + k : k * kStoredColumns + n)];
        EXPECT_TRUE((got == want && std::signbit(got) == std::signbit(want)) || (std::isnan(got) && std::isnan(want)))
            << k << ", " << n << ": " << got << " for " << want;
      }
    return packed->type();
  }
  std::vector<float> bfloats() {
    std::vector<float> numbers(kStoredDepth * kStoredColumns);
    for (float& x : numbers)
      x = std::bit_cast<float>(static_cast<uint32_t>(random_() % 0x7f80u << 16 | (random_() & 1) << 31));
    return numbers;
  }
  // From 2^-24 to below 2^15, and 0.
  std::vector<float> halves() {
    std::vector<float> numbers(kStoredDepth * kStoredColumns);
    for (float& x : numbers) {
      const int digits = static_cast<int>(random_() % 4096) - 2048, power = static_cast<int>(random_() % 29) - 24;
      x = std::ldexp(static_cast<float>(digits), power);
    }
    return numbers;
  }

  ThreadPool pool_{2};
  std::mt19937 random_{1};
};

TEST_F(PackStoreTest, Sixteen_bits_where_they_hold_every_number) {
  for (bool transposed : {false, true}) {
    EXPECT_EQ(packed_type(bfloats(), transposed), DType::kBF16);
    EXPECT_EQ(packed_type(halves(), transposed), DType::kF16);
  }
  EXPECT_EQ(packed_type(std::vector<float>(kStoredDepth * kStoredColumns)), DType::kBF16);
}

TEST_F(PackStoreTest, One_number_decides) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at : {size_t{0}, size_t{1000}, size_t{kStoredDepth * kStoredColumns - 1}}) {
    for (const auto& [number, bfloat, half] : {std::tuple<float, DType, DType>{1.0f / 3, DType::kF32, DType::kF32},
                                               {1 + std::ldexp(1.0f, -10), DType::kF32, DType::kF16},
                                               {1 + std::ldexp(1.0f, -11), DType::kF32, DType::kF32},
                                               {65504, DType::kF32, DType::kF16},
                                               {65536, DType::kBF16, DType::kF32},
                                               {std::ldexp(1.0f, -24), DType::kBF16, DType::kF16},
                                               {std::ldexp(3.0f, -25), DType::kBF16, DType::kF32},
                                               {std::ldexp(1023.0f, -24), DType::kF32, DType::kF16},
                                               {std::ldexp(1025.0f, -25), DType::kF32, DType::kF32},
                                               {std::ldexp(1.0f, -149), DType::kF32, DType::kF32},
                                               {std::ldexp(1.0f, -130), DType::kBF16, DType::kF32},
                                               {-0.0f, DType::kBF16, DType::kF16},
                                               {infinity, DType::kBF16, DType::kF32},
                                               {nan, DType::kBF16, DType::kF32}}) {
      std::vector<float> a = bfloats(), b = halves();
      a[at] = b[at] = number;
      EXPECT_EQ(packed_type(a), bfloat) << number << " at " << at;
      EXPECT_EQ(packed_type(b), half) << number << " at " << at;
    }
  }
}

// What a first start has packed and saved, a second one maps: the same bytes, whatever type they have; another start
// packs again.
TEST_F(PackStoreTest, Float_matrices_are_saved) {
  std::string name = (std::filesystem::temp_directory_path() / "situ_store_XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  const std::vector<std::vector<float>> matrices = {bfloats(), halves(),
                                                    std::vector<float>(kStoredDepth * kStoredColumns, 1.0f / 3)};
  const auto owner = std::make_shared<int>(0);
  const std::string model = folder / "model.data";
  std::ofstream(model) << "weights that passes have changed";
  auto start = [&](bool transposed, int64_t* written, std::vector<Tensor>* packed) {
    PackCache cache(pool_, {{owner.get(), model, nullptr, identity_of(model.c_str())}},
                    {.folder = folder / "cache", .least_bytes = 1, .settled_ns = 0});
    PackStore store(pool_, &cache);
    packed->clear();
    for (const std::vector<float>& m : matrices) {
      const Tensor w = Tensor::borrow(
          DType::kF32, {transposed ? kStoredColumns : kStoredDepth, transposed ? kStoredDepth : kStoredColumns},
          reinterpret_cast<const std::byte*>(m.data()), std::make_shared<int>(0));
      const Result<Tensor> p = store.pack_dense(w, kStoredDepth, kStoredColumns, transposed);
      ASSERT_TRUE(p.is_ok());
      packed->push_back(*p);
    }
    *written = store.written_bytes();
    std::optional<PackSave> save = cache.finish();
    if (save) {
      EXPECT_EQ((*save)(), "");
    }
  };
  std::vector<Tensor> first, second;
  int64_t written = 0;
  start(false, &written, &first);
  EXPECT_GT(written, 0);
  start(false, &written, &second);
  EXPECT_EQ(written, 0);
  const DType types[] = {DType::kBF16, DType::kF16, DType::kF32};
  for (size_t m = 0; m < matrices.size(); ++m) {
    EXPECT_EQ(second[m].type(), types[m]);
    EXPECT_EQ(second[m].to_f64(), first[m].to_f64());
  }
  start(true, &written, &second);
  EXPECT_GT(written, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace situ
