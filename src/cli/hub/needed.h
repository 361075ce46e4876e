// Which files of a repository a choice takes.
#pragma once

#include <set>
#include <string>

#include "pipelines/model_folder_choice.h"

namespace situ::hub {

bool has_ending(const std::string& path, std::initializer_list<const char*> endings);
// "": the root.
std::string parent_of(const std::string& path);
// Code, what may hold code, and the place of views (view.h).
bool is_never_fetched(const std::string& path);
// What is read before the choice.
bool is_configuration(const std::string& path);

// The graphs with their data, and what stands beside: configuration, tokenizer, template.
std::set<std::string> needed_files(const FolderListing& listing, const FolderChoice& choice);
// Whether the listing has a file that a graph of the choice may name as its data, however that is called.
bool may_name_more(const FolderListing& listing, const FolderChoice& choice, const std::set<std::string>& needed);
// The path of a file that a graph names, which may leave its folder: then it is none of the listing.
std::string beside(const std::string& graph, const std::string& name);

}  // namespace situ::hub
