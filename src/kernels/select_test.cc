// The choice of ISA. It is made once per process, so every case runs in a process of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/kernel.h"

namespace situ {
namespace {

// Exit code 0 when SITU_ISA=`wanted` gives the table `expected` and an error that mentions `mention` (or none).
void choose_and_exit(const char* wanted, const std::string& expected, const std::string& mention) {
  setenv("SITU_ISA", wanted, 1);
  const std::string isa = kernels().isa, error = select_isa_error();
  const bool told = mention.empty() ? error.empty() : error.find(mention) != std::string::npos;
  std::exit(isa == expected && told ? 0 : 1);
}

class Select : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    count_ = available_kernel_tables(tables_, 8);
  }
  const KernelTable* tables_[8];
  int count_ = 0;
};

TEST_F(Select, PortableIsAlwaysThereAndFirst) {
  ASSERT_GE(count_, 1);
  EXPECT_STREQ(tables_[0]->isa, "portable");
  const KernelTable* one = nullptr;
  EXPECT_EQ(available_kernel_tables(&one, 1), 1);
  EXPECT_EQ(one, tables_[0]);
}

TEST_F(Select, TablesAreComplete) {
  for (int i = 0; i < count_; ++i) {
#define SITU_KERNEL(name) EXPECT_NE(tables_[i]->name, nullptr) << #name;
#include "kernels/kernels.inc"
#undef SITU_KERNEL
  }
}

TEST_F(Select, EnvironmentOverrides) {
  for (int i = 0; i < count_; ++i) {
    EXPECT_EXIT(choose_and_exit(tables_[i]->isa, tables_[i]->isa, ""), ::testing::ExitedWithCode(0), "")
        << tables_[i]->isa;
  }
}

TEST_F(Select, BestByDefaultAndForUnknownNames) {
  const std::string best = tables_[count_ - 1]->isa;
  EXPECT_EXIT(choose_and_exit("", best, ""), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(choose_and_exit("mmx", best, "SITU_ISA=mmx: unknown name"), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace situ
