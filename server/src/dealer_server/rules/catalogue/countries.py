"""Which places can a package be sold for? Every country, and the usual bundles of countries."""

from typing import Literal, NamedTuple


class Country(NamedTuple):
    """A country or territory with its own ISO 3166-1 alpha-2 code; Kosovo by its user-assigned XK."""

    code: str
    name: str
    continent: str


class Bundle(NamedTuple):
    """Countries sold together. The number in the code is how many there are."""

    code: str
    name: str
    location_type: Literal["REGION", "GLOBAL"]
    continent: str
    locations: tuple[str, ...]


_BY_CONTINENT = {
    "Africa": """
        AO Angola · BF Burkina Faso · BI Burundi · BJ Benin · BW Botswana · CD Democratic Republic of the Congo
        CF Central African Republic · CG Republic of the Congo · CI Côte d'Ivoire · CM Cameroon · CV Cabo Verde
        DJ Djibouti · DZ Algeria · EG Egypt · EH Western Sahara · ER Eritrea · ET Ethiopia · GA Gabon · GH Ghana
        GM Gambia · GN Guinea · GQ Equatorial Guinea · GW Guinea-Bissau · KE Kenya · KM Comoros · LR Liberia
        LS Lesotho · LY Libya · MA Morocco · MG Madagascar · ML Mali · MR Mauritania · MU Mauritius · MW Malawi
        MZ Mozambique · NA Namibia · NE Niger · NG Nigeria · RE Réunion · RW Rwanda · SC Seychelles · SD Sudan
        SH Saint Helena, Ascension and Tristan da Cunha · SL Sierra Leone · SN Senegal · SO Somalia · SS South Sudan
        ST São Tomé and Príncipe · SZ Eswatini · TD Chad · TG Togo · TN Tunisia · TZ Tanzania · UG Uganda
        YT Mayotte · ZA South Africa · ZM Zambia · ZW Zimbabwe""",
    "Antarctica": """
        AQ Antarctica · BV Bouvet Island · GS South Georgia and the South Sandwich Islands
        HM Heard Island and McDonald Islands · TF French Southern Territories""",
    "Asia": """
        AE United Arab Emirates · AF Afghanistan · AM Armenia · AZ Azerbaijan · BD Bangladesh · BH Bahrain · BN Brunei
        BT Bhutan · CN China · GE Georgia · HK Hong Kong · ID Indonesia · IL Israel · IN India
        IO British Indian Ocean Territory · IQ Iraq · IR Iran · JO Jordan · JP Japan · KG Kyrgyzstan · KH Cambodia
        KP North Korea · KR South Korea · KW Kuwait · KZ Kazakhstan · LA Laos · LB Lebanon · LK Sri Lanka · MM Myanmar
        MN Mongolia · MO Macao · MV Maldives · MY Malaysia · NP Nepal · OM Oman · PH Philippines · PK Pakistan
        PS Palestine · QA Qatar · SA Saudi Arabia · SG Singapore · SY Syria · TH Thailand · TJ Tajikistan
        TL Timor-Leste · TM Turkmenistan · TR Türkiye · TW Taiwan · UZ Uzbekistan · VN Vietnam · YE Yemen""",
    "Europe": """
        AD Andorra · AL Albania · AT Austria · AX Åland Islands · BA Bosnia and Herzegovina · BE Belgium · BG Bulgaria
        BY Belarus · CH Switzerland · CY Cyprus · CZ Czechia · DE Germany · DK Denmark · EE Estonia · ES Spain
        FI Finland · FO Faroe Islands · FR France · GB United Kingdom · GG Guernsey · GI Gibraltar · GR Greece
        HR Croatia · HU Hungary · IE Ireland · IM Isle of Man · IS Iceland · IT Italy · JE Jersey · LI Liechtenstein
        LT Lithuania · LU Luxembourg · LV Latvia · MC Monaco · MD Moldova · ME Montenegro · MK North Macedonia
        MT Malta · NL Netherlands · NO Norway · PL Poland · PT Portugal · RO Romania · RS Serbia · RU Russia
        SE Sweden · SI Slovenia · SJ Svalbard and Jan Mayen · SK Slovakia · SM San Marino · UA Ukraine
        VA Vatican City · XK Kosovo""",
    "North America": """
        AG Antigua and Barbuda · AI Anguilla · AW Aruba · BB Barbados · BL Saint Barthélemy · BM Bermuda
        BQ Bonaire, Sint Eustatius and Saba · BS Bahamas · BZ Belize · CA Canada · CR Costa Rica · CU Cuba · CW Curaçao
        DM Dominica · DO Dominican Republic · GD Grenada · GL Greenland · GP Guadeloupe · GT Guatemala · HN Honduras
        HT Haiti · JM Jamaica · KN Saint Kitts and Nevis · KY Cayman Islands · LC Saint Lucia
        MF Saint Martin (French part) · MQ Martinique · MS Montserrat · MX Mexico · NI Nicaragua · PA Panama
        PM Saint Pierre and Miquelon · PR Puerto Rico · SV El Salvador · SX Sint Maarten (Dutch part)
        TC Turks and Caicos Islands · TT Trinidad and Tobago · US United States
        VC Saint Vincent and the Grenadines · VG British Virgin Islands · VI United States Virgin Islands""",
    "Oceania": """
        AS American Samoa · AU Australia · CC Cocos (Keeling) Islands · CK Cook Islands · CX Christmas Island · FJ Fiji
        FM Micronesia · GU Guam · KI Kiribati · MH Marshall Islands · MP Northern Mariana Islands · NC New Caledonia
        NF Norfolk Island · NR Nauru · NU Niue · NZ New Zealand · PF French Polynesia · PG Papua New Guinea
        PN Pitcairn · PW Palau · SB Solomon Islands · TK Tokelau · TO Tonga · TV Tuvalu
        UM United States Minor Outlying Islands · VU Vanuatu · WF Wallis and Futuna · WS Samoa""",
    "South America": """
        AR Argentina · BO Bolivia · BR Brazil · CL Chile · CO Colombia · EC Ecuador · FK Falkland Islands
        GF French Guiana · GY Guyana · PE Peru · PY Paraguay · SR Suriname · UY Uruguay · VE Venezuela""",
}
CONTINENTS = tuple(_BY_CONTINENT)


def _entries(text: str) -> list[str]:
    """The entries of a table above: parted by a dot or a line's end."""
    return [entry.strip() for line in text.splitlines() for entry in line.split("·") if entry.strip()]


COUNTRIES = {
    entry[:2]: Country(entry[:2], entry[3:], continent)
    for continent, text in _BY_CONTINENT.items()
    for entry in _entries(text)
}

_EU = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK"
_EUROPE_35 = f"{_EU} AL CH GB GI IS LI NO TR"
_EUROPE_42 = f"{_EUROPE_35} BA GG JE MD ME MK RS"
_GULF = "AE BH KW OM QA SA"
_CENTRAL_ASIA = "KG KZ TJ TM UZ"
_SOUTH_EAST_ASIA = "BN ID KH LA MM MY PH SG TH VN"
_CARIBBEAN = "AG AI AW BB BM BQ BS CW DM DO GD GP HT JM KN KY LC MQ MS PR SX TC TT VC VG"
_CENTRAL_AMERICA = "BZ CR GT HN NI PA SV"
_SOUTH_AMERICA = "AR BO BR CL CO EC GF GY PE PY SR UY"
_AFRICA = "BF BW CD CF CG CI CM EG GA GH GN GW KE LR LS MA MG ML MU MW MZ NE NG RW SC SL SN SZ TD TN TZ UG ZA ZM"
_GLOBAL = f"""{_EUROPE_35} BA MD ME MK RS UA
    {_GULF} AM AZ BD CN GE HK IL IN IQ JO JP KG KR KZ LK MN MO NP PK TW UZ {_SOUTH_EAST_ASIA}
    AU FJ GU NZ PG
    BB BS CA CW DO GP JM KY MQ MX PR TC TT US {_CENTRAL_AMERICA}
    AR BO BR CL CO EC PE PY UY
    EG GH KE MA MG MU NG SN TN TZ UG ZA ZM"""

_BUNDLES = (
    ("EU-27", "European Union", "Europe", _EU),
    ("EU-35", "Europe", "Europe", _EUROPE_35),
    ("EU-42", "Europe Plus", "Europe", _EUROPE_42),
    ("BI-5", "British Isles", "Europe", "GB GG IE IM JE"),
    ("ALPS-6", "Alps", "Europe", "AT CH DE FR IT LI"),
    ("BALKANS-10", "Balkans", "Europe", "AL BA BG GR HR ME MK RS SI XK"),
    ("BALTICS-3", "Baltics", "Europe", "EE LT LV"),
    ("BENELUX-3", "Benelux", "Europe", "BE LU NL"),
    ("IBERIA-4", "Iberia", "Europe", "AD ES GI PT"),
    ("NORDICS-8", "Nordics", "Europe", "AX DK FI FO GL IS NO SE"),
    ("ASIA-13", "Asia", "Asia", "CN HK ID JP KH KR MO MY PH SG TH TW VN"),
    ("ASIA-22", "Asia Plus", "Asia", "AU BD BN CN HK ID IN JP KH KR LA LK MM MO MY NP NZ PH SG TH TW VN"),
    ("CN-3", "China, Hong Kong and Macao", "Asia", "CN HK MO"),
    ("JPKR-2", "Japan and South Korea", "Asia", "JP KR"),
    ("SEA-3", "Singapore, Malaysia and Thailand", "Asia", "MY SG TH"),
    ("SEA-10", "South-East Asia", "Asia", _SOUTH_EAST_ASIA),
    ("SASIA-5", "South Asia", "Asia", "BD IN LK NP PK"),
    ("CASIA-5", "Central Asia", "Asia", _CENTRAL_ASIA),
    ("CAUCASUS-3", "Caucasus", "Asia", "AM AZ GE"),
    ("GULF-6", "Gulf", "Asia", _GULF),
    ("MENA-14", "Middle East and North Africa", "Asia", f"{_GULF} DZ EG IL IQ JO MA TN TR"),
    ("AFRICA-34", "Africa", "Africa", _AFRICA),
    ("EAFRICA-6", "East Africa", "Africa", "BI ET KE RW TZ UG"),
    ("WAFRICA-9", "West Africa", "Africa", "BF BJ CI GH LR ML NG SL SN"),
    ("SAFRICA-8", "Southern Africa", "Africa", "BW LS MW MZ NA SZ ZA ZM"),
    ("INDIAN-OCEAN-6", "Indian Ocean", "Africa", "KM MG MU RE SC YT"),
    ("USCA-2", "USA and Canada", "North America", "CA US"),
    ("NA-3", "North America", "North America", "CA MX US"),
    ("CARIBBEAN-25", "Caribbean", "North America", _CARIBBEAN),
    ("CAM-7", "Central America", "North America", _CENTRAL_AMERICA),
    ("SAM-12", "South America", "South America", _SOUTH_AMERICA),
    ("LATAM-18", "Latin America", "South America", f"AR BO BR CL CO DO EC MX PE PY UY {_CENTRAL_AMERICA}"),
    ("ANZ-2", "Australia and New Zealand", "Oceania", "AU NZ"),
    ("OCEANIA-9", "Oceania", "Oceania", "AU FJ GU NZ PF PG TO VU WS"),
    ("GL-126", "Global", "", _GLOBAL),
)
BUNDLES = {
    code: Bundle(code, name, "REGION" if continent else "GLOBAL", continent, tuple(sorted(locations.split())))
    for code, name, continent, locations in _BUNDLES
}
