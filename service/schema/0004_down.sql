DROP TABLE alert_deliveries;

DROP TABLE alert_told;

DROP TABLE alert_results;
