// SPDX-License-Identifier: MIT
// write_policy_pairs PAGE: puts the list of refused pairs between the page's `<!-- pairs -->` lines.
#include <looptorch/trainer.hpp>

#include "support/policy_pairs.hpp"

#include <torch/torch.h>

#include <fstream>
#include <iostream>
#include <sstream>

int main(int argc, char** argv) {
  constexpr std::string_view kBegin = "<!-- pairs -->\n", kEnd = "<!-- end of pairs -->";
  if (argc != 2) return std::cerr << "usage: write_policy_pairs PAGE\n", 2;
  std::ostringstream read;
  read << std::ifstream(argv[1]).rdbuf();
  std::string page = read.str();
  const auto begin = page.find(kBegin), end = page.find(kEnd);
  if (begin == page.npos || end == page.npos)
    return std::cerr << argv[1] << " has no place for the table\n", 1;
  const auto from = begin + kBegin.size();
  constexpr auto table = policy_pairs::table();
  std::ofstream(argv[1]) << page.replace(from, end - from, table.view());
}
