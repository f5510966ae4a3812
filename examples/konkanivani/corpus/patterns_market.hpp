// SPDX-License-Identifier: MIT
// Patterns of Konkani sentences about the market, the kitchen and everyday things, one a line. sentences.hpp
// fills their slots with words to make the synthetic corpus.
#pragma once

#include <string_view>

namespace konkanivani {

inline constexpr std::string_view kMarketPatterns = R"(
{fruit} कितल्याक दिता
{fish} कितल्याक दिता
{vegetable} कितल्याक आसा
हें {thing_n} कितल्याक
ही {thing_f} कितल्याक
हो {thing_m} कितल्याक
{fruit} {price} रुपया
{fish} {price} रुपया किलो
{grocery} {price} रुपया किलो
{vegetable} {price} रुपया किलो
{unit} किलो {grocery} दी
{unit} किलो {vegetable} दी
म्हाका {unit} किलो {grocery} जाय
म्हाका {grocery} जाय
म्हाका {fruit} जाय
म्हाका {fish} नाका
म्हाका {drink} जाय
म्हाका {food} नाका
अर्दो किलो {grocery} दी
अर्दो किलो {vegetable} जाय
एक डझन केळीं दी
{unit} नाल्ल दी
{unit} अंडीं दी
खूब म्हारग आसा
हें खूब म्हारग
मात्शें उणें कर
{price} रुपयांक दी
{price} रुपया घे
कितले पयशे जाले
सगळे {price} रुपया जाले
सुटे पयशे आसात काय
सुटे पयशे नात
पयशे मागीर दितां
ताजें नुस्तें आसा काय
{fish} ताजो आसा काय
आयज {fish} ना
{when} {fish} मेळटलो
आयज {vegetable} ना
{fruit} गोड आसा काय
{fruit} गोड आसा
{fruit} आंबट आसा
{fruit} आनी {fruit} दी
{vegetable} आनी {vegetable} दी
{grocery} आनी {grocery} हाड
{person} {grocery} हाडटा
{her} {vegetable} विकता
{his} {fish} विकता
{person} बाजारांत गेला
हांव {weekday_on} बाजारांत वतां
{weekday_on} बाजार भरता
{weekday_on} दुकान बंद आसता
दुकान {hour} वरांचेर उगडटा
दुकान {hour} वरांचेर बंद जाता
आयज {food} रांदलां
{her} {food} रांदता
{his} {food} खाता
हांव {food} खातां
हांव {fruit} खातां
हांव {drink} पितां
{person} {drink} पिता
{person} {part} {drink} पिता
आमी {part} {food} खातात
{part} {food} खावया
{drink} पिवया {person}
तूं {drink} घेता काय
तूं {food} खाता काय
{food} कशें लागता
{food} बरें लागता
{food} तीख आसा
भाजयेंत मीठ उणें
च्यांत साकर चड जाली
मात्शें {drink} दी
मात्शें {food} दी
आनीक {food} जाय काय
पोट भरलें {person}
जेवण तयार आसा
जेवपाक यो {person}
म्हाका {food} खूब आवडटा
ताका {fish} आवडना
{fruit} म्हाका आवडटा
हें {good_n} {thing_n}
ही {good_f} {thing_f}
हो {good_m} {thing_m}
हें {thing_n} {colour_n}
ही {thing_f} {colour_f}
हो {thing_m} {colour_m}
म्हाका {colour_n} {thing_n} जाय
म्हाका {colour_f} {thing_f} जाय
म्हाका {colour_m} {thing_m} जाय
{person} {good_n} {thing_n} हाडटा
म्हजें {thing_n} खंय आसा
म्हजी {thing_f} खंय आसा
म्हजो {thing_m} खंय आसा
तुजें {thing_n} {good_n} आसा
तुजी {thing_f} {good_f} आसा
तुजो {thing_m} {good_m} आसा
{thing_n} मेजार आसा
{thing_f} घरांत आसा
{thing_m} भितर आसा
)";

}  // namespace konkanivani
