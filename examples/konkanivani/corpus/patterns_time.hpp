// SPDX-License-Identifier: MIT
// Patterns of Konkani sentences about numbers, dates, hours, weather and feasts, one a line. sentences.hpp
// fills their slots with words to make the synthetic corpus.
#pragma once

#include <string_view>

namespace konkanivani {

inline constexpr std::string_view kTimePatterns = R"(
{unit} आनी {unit} कितले
{teen} आनी {unit} कितले
{number} आनी {number}
{unit} {unit} {unit}
{number} {number} {number}
{unit} {unit} {unit} {unit}
म्हजो नंबर {unit} {unit} {unit}
घर नंबर {number}
पान नंबर {number} उगड
धडो {number} वाच
{number} भुरगीं आयल्यांत
{number} लोक आसात
{number} वर्सां जालीं
{number} दीस उरल्यात
{number} म्हयने जाले
हांव {number} वर्सांचो
हांव {number} वर्सांची
{person} {number} वर्सांचो
आयज {weekday}
फाल्यां {weekday}
काल {weekday} आशिल्लो
आयज {weekday} न्ही
आयज कितें वार
आयज तारीख कितली
आयज {day_number} {month}
फाल्यां {day_number} {month}
तारीख {day_number} {month}
{day_number} {month} {weekday} आसा
{day_number} {month} सुटी आसा
म्हजो वाडदीस {day_number} {month}
तुजो वाडदीस केन्ना
{month} म्हयनो आयलो
{month} म्हयनो सोंपलो
{month} म्हयन्यांत {season} आसता
{month} म्हयन्यांत सुटी
{weekday_on} शाळा ना
{weekday_on} सुटी आसता
{weekday_on} {person} येता
{weekday_on} काम चड आसता
कितलीं वरां जालीं
{hour} वरां जालीं
आतां {hour} वरां जालीं
साडे {hour} वरां जालीं
सवाय {hour} वरां जालीं
पावणे {hour} वरां जालीं
{hour} वरांचेर यो
{part} {hour} वरांचेर
{part} {hour} वरांचेर यो
हांव {hour} वरांचेर उठतां
{person} {hour} वरांचेर येता
{person} {hour} वरांचेर न्हिदता
शाळा {hour} वरांचेर सुरू जाता
बैठक {hour} वरांचेर आसा
बैठक {weekday_on} {hour} वरांचेर
वेळ जालो {person}
मात्शें राव {person}
{number} मिनटां राव
{number} मिनटांनी येतां
आयज पावस पडटा
आयज पावस ना
{when} पावस पडटलो
काल खूब पावस पडलो
{place_in} पावस पडटा
{place_in} खूब पावस पडलो
{place_in} वारें आसा
{place_in} गरम आसा
{place_in} थंड आसा
आयज खूब गरम जाता
आयज मात्शें थंड आसा
{part} थंड जाता
{part} वारें मारता
{part} धुकें पडटा
मळबांत कुपां आसात
मळब निवळ आसा
वत खूब चड आसा
आयज वत ना
गडगड जाता
वीज चमकता
वादळ येता {person}
{when} वादळ येतलें
दर्यार लारां व्हड आसात
दर्यार वचूं नाका
न्हंयेंत उदक चड जालें
साकव उदकांत गेलो
सत्री घे {person}
पावसांत भिजूं नाका
{season} येता
{season} सुरू जाता
म्हाका {season} आवडटा
म्हाका {season} आवडना
{number} अंश गर्मी आसा
आयज {number} अंश
{place_in} आयज {number} अंश
इंद्रधोणू पळय {person}
सुर्य उदेता
सुर्य बुडटा
चंद्रीम सोबीत दिसता
नखेत्रां चमकतात
{feast} केन्ना आसा
{feast} {month} म्हयन्यांत येता
{feast} {weekday_on} आसा
{feast} {when} आसा
{feast} परबेचीं परबीं
तुका {feast} परबेचीं परबीं
आमी {feast} मनयतात
{place_in} {feast} मनयतात
)";

}  // namespace konkanivani
