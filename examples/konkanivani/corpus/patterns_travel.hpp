// SPDX-License-Identifier: MIT
// Patterns of Konkani sentences about travel, places, animals, school and home, one a line. sentences.hpp
// fills their slots with words to make the synthetic corpus.
#pragma once

#include <string_view>

namespace konkanivani {

inline constexpr std::string_view kTravelPatterns = R"(
हांव {place_to} वतां
तूं {place_to} वता काय
{person} {place_to} वता
आमी {place_to} वतात
हांव {when} {place_to} वतां
{man} {when} {place_to} वतलो
{woman} {when} {place_to} वतली
{his} {place_to} गेला
{her} {place_to} गेल्या
हांव {place_to} सावन आयलों
{man} {place_to} सावन आयलो
{woman} {place_to} सावन आयली
{place_to} सावन {place_to} वच
{place} कितलें पयस
{place} हांगा सावन पयस आसा
{place} लागीं आसा
{place} {number} किलोमीटर पयस
{place} खूब सोबीत आसा
{place} व्हड शार
{place_in} {spot} आसा
{place_in} {spot} ना
{place_in} व्हड {spot} आसा
{spot} खंय आसा
{spot} लागीं आसा
{spot} पयस आसा
{spot} खंयचे वाटेर आसा
{spot} उजवे वटेन आसा
{spot} दावे वटेन आसा
{spot} मुखार आसा
{spot} फाटल्यान आसा
उजवे वटेन वळ
दावे वटेन वळ
नीट मुखार वच
हांगा राव {person}
थंय वचूं नाका
वाट चुकली म्हजी
ही वाट {place_to} वता
हो रस्तो {place_to} वता
{place_to} वचपाची {ride}
{ride} केन्ना येता
{ride} केन्ना सुटता
{ride} {hour} वरांचेर येता
{ride} {hour} वरांचेर सुटता
{ride} {part} सुटता
{ride} चुकली {person}
{ride} वेळार आयली
{ride} आयज ना
{ride} {place_to} वता काय
{ride} {place_in} रावता
{ride} हांगा रावना
हांव {ride_by} वतां
{person} {ride_by} येता
आमी {ride_by} {place_to} वतात
{place_to} {ride_by} वचूंक जाता
{ride_by} {number} मिनटां लागतात
{ride_by} {unit} वरां लागतात
तिकेट कितल्याक {person}
तिकेट {price} रुपया
{unit} तिकेटी दी
{place_to} {unit} तिकेटी दी
विमान {hour} वरांचेर सुटता
विमान {place_in} देंवलें
विमान {part} येता
म्हजी पेटी खंय आसा
म्हजी पिशवी खंय उरली
खोली आसा काय
{unit} दिसांक खोली जाय
खोली {price} रुपया
दर्यादेगेर वचूया
{when} दर्यादेगेर वचूया
{person} दर्यार पोंवता
किल्लो पळोवंक वचूया
{spot_in} लोक चड आसात
{spot_in} कोण आसा
{spot_in} {person} मेळ्ळो
{animal} {spot_in} आसा
{animal} घरा मुखार आसा
{animal} उदक पिता
{animal} धांवता
{animal} न्हिदता
म्हाका {animal} आवडटा
तुजें {animal} खंय
एक {animal} आनी एक {animal}
{unit} {animal} आसात
रानांत {animal} आसा
{bird} झाडार आसा
{bird} मळबांत उडटा
{bird} गायता
{bird} पळय {person}
{person} शाळेंत वता
{person} पुस्तक वाचता
{person} चिट्ठी बरयता
हांव {tongue} पुस्तक वाचतां
शिक्षक {tongue} शिकयता
आयज परिक्षा आसा
{weekday_on} परिक्षा आसा
परिक्षा बरी जाली
अभ्यास कर {person}
पुस्तक उगड {person}
दार उगड {person}
दार बंद कर
दिवो पेटय {person}
दिवो पालव {person}
घर निवळ कर
कपडे धू {person}
फोन कर {person}
{when} फोन कर
{person} फोनार उलयता
गीत गाय {person}
{tongue} गीत आयक
बातम्यो आयक {person}
खबर कितें {person}
खबर बरी आसा
{person} चित्र काडटा
भुरगें रडटा
भुरगें हांसता
आजी काणी सांगता
आजी {part} काणी सांगता
बापूय शेतांत वावुरता
शेतांत भात पिकलां
झाडाक {fruit} लागला
फूल {colour_n} आसा
)";

}  // namespace konkanivani
