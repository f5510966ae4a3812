// SPDX-License-Identifier: MIT
// Patterns of Konkani sentences about greetings, courtesy, people and work, one a line. sentences.hpp fills
// their slots with words to make the synthetic corpus.
#pragma once

#include <string_view>

namespace konkanivani {

inline constexpr std::string_view kMeetingPatterns = R"(
देव बरो दीस दिवं {person}
देव बरी रात दिवं {person}
देव बरें करूं {person}
देव बरें करूं बाब
नमस्कार {person}
नमस्कार हांव {person}
म्हजें नांव {person}
ताचें नांव {man}
तिचें नांव {woman}
तुजें नांव कितें
तुमचें नांव कितें आसा
तुजें नांव {person} न्ही
{person} तूं कसो आसा
{woman} तूं कशी आसा
तुमी कशे आसात
हांव बरो आसां
हांव बरी आसां
आमी बरे आसात
{his} कसो आसा
{her} कशी आसा
{his} बरो आसा
{her} बरी आसा
{person} खंय आसा
{person} {spot_in} आसा
{his} खंय आसा
{her} खंय गेली
{his} {spot_in} गेला
{her} {spot_in} गेल्या
हांव {place_in} रावतां
तूं खंय रावता
{person} {place_in} रावता
{his} {place_in} रावता
{her} {place_in} रावता
तुमी {place_in} रावतात
आमी {place_in} रावतात
तूं खंयचो
तूं खंयची
हांव {place} शारांतलो
यो {person} बस
या बसात मात्शें
भितर यो {person}
घरा यो {part}
{when} घरा यो
मेळुया {when}
{when} मेळुया {spot_in}
परत मेळुया {person}
बरें वचून यो
माफ कर {person}
माफ करात बाब
उपकार जाले {person}
व्हय हांव येतां
ना हांव येना
व्हय {person} येता
ना {person} येना
{person} आयलो काय
{woman} आयली काय
{man} {when} येतलो
{woman} {when} येतली
म्हाका तूं आवडटा
म्हाका {person} खूब आवडटा
म्हाका समजलें ना
म्हाका सगळें समजलें
परत एक फावट सांग
ल्हवू ल्हवू उलय {person}
तूं {tongue} उलयता
हांव {tongue} उलयतां
{person} {tongue} शिकता
आमी घरांत {tongue} उलयतात
म्हाका {tongue} समजता
तुका {tongue} येता काय
{tongue} म्हजी आवयभास
हांव {work_1}
तो {work_3}
ती {work_3}
ते {work_p}
आमी {when} {work_p}
हांव {part} {work_1}
{person} {spot_in} {work_3}
{his} {part} {work_3}
{her} {part} {work_3}
भुरगीं {spot_in} {work_p}
तूं {when} {work_2}
{person} मात्शें {work_2}
तूं कितें करता
तो कितें करता
{his} {craft_m} आसा
{her} {craft_f} आसा
{man} {craft_m} जातलो
{woman} {craft_f} जातली
हांव {craft_m} न्ही
तो बरो {craft_m}
ती बरी {craft_f}
म्हजो {kin_m} {craft_m}
म्हजी {kin_f} {craft_f}
म्हाका {unit} भाव आसात
म्हाका {unit} भयणी आसात
ताका {unit} भुरगीं आसात
म्हजी {body} दुखता
ताची {body} दुखता
दोतोरा म्हजी {body} पळय
म्हाका ताप आयला
म्हाका भूक लागल्या
म्हाका तान लागल्या
म्हाका न्हीद येता
{person} दुयेंत आसा
)";

}  // namespace konkanivani
